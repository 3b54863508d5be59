package aws

import (
	"fmt"
	"sort"

	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas/types"

	"github.com/zopday/provisioner/internal/sim"
)

// quotaService is Service Quotas: it shows the same numbers that the services enforce.
type quotaService struct {
	cloud *Cloud
	state struct{}
}

// quotaServiceNames are the services that have quotas here, with the names that Service Quotas shows.
var quotaServiceNames = map[string]string{ //nolint:gosec // names, one of them of Secrets Manager
	"vpc": "Amazon Virtual Private Cloud (Amazon VPC)", "ec2": "Amazon Elastic Compute Cloud (Amazon EC2)",
	"ebs": "Amazon Elastic Block Store (Amazon EBS)", "iam": "AWS Identity and Access Management (IAM)",
	"elasticloadbalancing": "Elastic Load Balancing (ELB)", "autoscaling": "Amazon EC2 Auto Scaling", "route53": "Amazon Route 53",
	"acm": "AWS Certificate Manager (ACM)", "s3": "Amazon Simple Storage Service (Amazon S3)", "eks": "Amazon Elastic Kubernetes Service (Amazon EKS)",
	"kms": "AWS Key Management Service (AWS KMS)", "rds": "Amazon Relational Database Service (Amazon RDS)", "elasticache": "Amazon ElastiCache",
	"secretsmanager": "AWS Secrets Manager",
}

func newQuotas(c *Cloud) *quotaService {
	s := &quotaService{cloud: c}
	c.World.Register(s)
	c.add(&api{
		service: "servicequotas", sdkPrefix: "ServiceQuotasV20190624", protocol: jsonProtocol, version: "2019-06-24",
		ops: overJSON(map[string]typedOp{
			"GetServiceQuota": op(s.getServiceQuota), "ListServiceQuotas": op(s.listServiceQuotas), "ListServices": op(s.listServices),
			"GetAWSDefaultServiceQuota": op(s.getDefaultQuota), "ListAWSDefaultServiceQuotas": op(s.listDefaultQuotas),
		}),
		encode: encodeJSON, messageKey: func(string) string { return "Message" },
		// "Common errors" of this API name its own throttling code.
		throttle: Error{Code: "TooManyRequestsException", Message: "Rate exceeded"},
	})
	return s
}

// Cloud implements sim.Service.
func (s *quotaService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *quotaService) Name() string { return "servicequotas" }

// State implements sim.Service; the quotas themselves are the world's.
func (s *quotaService) State() any { return &s.state }

// Reset implements sim.Service.
func (s *quotaService) Reset() {}

// Event implements sim.Service.
func (s *quotaService) Event(string, string) {}

// Objects implements sim.Service.
func (s *quotaService) Objects() []sim.Object { return nil }

// SetState implements sim.Service.
func (s *quotaService) SetState(id, _, _, _ string) error {
	return fmt.Errorf("%s: Service Quotas has no objects; set quotas with /_sim/quotas", id)
}

// Remove implements sim.Service.
func (s *quotaService) Remove(id string) error { return s.SetState(id, "", "", "") }

func (s *quotaService) sdk(c *reqCtx, q sim.Quota, def bool) types.ServiceQuota {
	account, value := c.account, q.Value
	if def {
		account, value = "", q.Default
	}
	out := types.ServiceQuota{
		ServiceCode: new(q.Service), ServiceName: new(orText(quotaServiceNames[q.Service], q.Service)), QuotaCode: new(q.Code), QuotaName: new(q.Name),
		QuotaArn: new(arn("servicequotas", c.region, account, q.Service+"/"+q.Code)), Value: new(value), Unit: new(orText(q.Unit, "None")),
		Adjustable: q.Adjustable, GlobalQuota: q.Global, QuotaAppliedAtLevel: types.AppliedLevelEnumAccount,
	}
	if q.Code == "L-1216C47A" {
		out.UsageMetric = &types.MetricInfo{
			MetricNamespace: new("AWS/Usage"), MetricName: new("ResourceCount"), MetricStatisticRecommendation: new("Maximum"),
			MetricDimensions: map[string]string{"Class": "Standard/OnDemand", "Resource": "vCPU", "Service": "EC2", "Type": "Resource"},
		}
	}
	return out
}

func (s *quotaService) find(c *reqCtx, service, code *string) (sim.Quota, error) {
	known := false
	for _, q := range c.w.Quotas("aws", c.account, c.region) {
		if q.Service != deref(service) {
			continue
		}
		known = true
		if q.Code == deref(code) {
			return q, nil
		}
	}
	if !known {
		return sim.Quota{}, fail(400, "NoSuchResourceException", "The request failed because the specified service does not exist.")
	}
	return sim.Quota{}, fail(400, "NoSuchResourceException", "The request failed because the specified service quota does not exist.")
}

func (s *quotaService) getServiceQuota(c *reqCtx, in *servicequotas.GetServiceQuotaInput) (*servicequotas.GetServiceQuotaOutput, error) {
	q, err := s.find(c, in.ServiceCode, in.QuotaCode)
	if err != nil {
		return nil, err
	}
	return &servicequotas.GetServiceQuotaOutput{Quota: new(s.sdk(c, q, false))}, nil
}

func (s *quotaService) getDefaultQuota(c *reqCtx, in *servicequotas.GetAWSDefaultServiceQuotaInput) (*servicequotas.GetAWSDefaultServiceQuotaOutput, error) {
	q, err := s.find(c, in.ServiceCode, in.QuotaCode)
	if err != nil {
		return nil, err
	}
	return &servicequotas.GetAWSDefaultServiceQuotaOutput{Quota: new(s.sdk(c, q, true))}, nil
}

func (s *quotaService) listed(c *reqCtx, service, code *string, def bool) ([]types.ServiceQuota, error) {
	if _, err := s.find(c, service, code); err != nil && (code != nil || quotaServiceNames[deref(service)] == "") {
		return nil, err
	}
	all := []types.ServiceQuota{}
	for _, q := range c.w.Quotas("aws", c.account, c.region) {
		if q.Service == deref(service) && (code == nil || q.Code == *code) {
			all = append(all, s.sdk(c, q, def))
		}
	}
	return all, nil
}

func (s *quotaService) listServiceQuotas(c *reqCtx, in *servicequotas.ListServiceQuotasInput) (*servicequotas.ListServiceQuotasOutput, error) {
	all, err := s.listed(c, in.ServiceCode, in.QuotaCode, false)
	if err != nil {
		return nil, err
	}
	page, next, err := quotaPage(c, all, in.NextToken, in.MaxResults)
	return &servicequotas.ListServiceQuotasOutput{Quotas: page, NextToken: next}, err
}

func (s *quotaService) listDefaultQuotas(c *reqCtx, in *servicequotas.ListAWSDefaultServiceQuotasInput) (*servicequotas.ListAWSDefaultServiceQuotasOutput, error) {
	all, err := s.listed(c, in.ServiceCode, nil, true)
	if err != nil {
		return nil, err
	}
	page, next, err := quotaPage(c, all, in.NextToken, in.MaxResults)
	return &servicequotas.ListAWSDefaultServiceQuotasOutput{Quotas: page, NextToken: next}, err
}

func (s *quotaService) listServices(c *reqCtx, in *servicequotas.ListServicesInput) (*servicequotas.ListServicesOutput, error) {
	all := []types.ServiceInfo{}
	for code, name := range quotaServiceNames {
		all = append(all, types.ServiceInfo{ServiceCode: new(code), ServiceName: new(name)})
	}
	sort.Slice(all, func(i, j int) bool { return *all[i].ServiceCode < *all[j].ServiceCode })
	page, next, err := quotaPage(c, all, in.NextToken, in.MaxResults)
	return &servicequotas.ListServicesOutput{Services: page, NextToken: next}, err
}

func quotaPage[T any](c *reqCtx, all []T, token *string, maxResults *int32) ([]T, *string, error) {
	limit := int(orDefault(maxResults, 100))
	if limit < 1 || limit > 100 {
		return nil, nil, fail(400, "IllegalArgumentException", "MaxResults must be between 1 and 100.")
	}
	page, next, err := pageOf(c, all, token, limit)
	if err != nil {
		return nil, nil, fail(400, "InvalidPaginationTokenException", "Invalid NextToken.")
	}
	return page, next, nil
}
