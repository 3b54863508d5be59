package aws

import (
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	"github.com/zopday/provisioner/internal/sim"
)

func TestServiceQuotas(t *testing.T) {
	r := newRig(t, immediate)
	c := servicequotas.NewFromConfig(r.cfg)
	get := func(service, code string) (float64, error) {
		out, err := c.GetServiceQuota(r.ctx(), &servicequotas.GetServiceQuotaInput{ServiceCode: &service, QuotaCode: &code})
		if err != nil {
			return 0, err
		}
		return *out.Quota.Value, nil
	}
	if v, err := get("iam", quotaRoles); err != nil || v != 1000 {
		t.Fatalf("roles per account: %v %v", v, err)
	}
	r.w.SetQuota("aws", "iam", quotaRoles, testAccount, "", 7)
	if v, err := get("iam", quotaRoles); err != nil || v != 7 {
		t.Errorf("after the change: %v %v", v, err)
	}
	def := must(c.GetAWSDefaultServiceQuota(r.ctx(), &servicequotas.GetAWSDefaultServiceQuotaInput{ServiceCode: awssdk.String("iam"), QuotaCode: awssdk.String(quotaRoles)}))(t)
	if *def.Quota.Value != 1000 || *def.Quota.QuotaArn != "arn:aws:servicequotas:us-east-1::iam/"+quotaRoles {
		t.Errorf("default: %+v", def.Quota)
	}
	_, err := get("iam", "L-00000000")
	wantCode(t, err, "NoSuchResourceException")
	_, err = get("nothing", quotaRoles)
	wantCode(t, err, "NoSuchResourceException")

	var n int
	p := servicequotas.NewListServiceQuotasPaginator(c, &servicequotas.ListServiceQuotasInput{ServiceCode: awssdk.String("iam"), MaxResults: awssdk.Int32(2)})
	for p.HasMorePages() {
		n += len(must(p.NextPage(r.ctx()))(t).Quotas)
	}
	if n != 4 {
		t.Errorf("%d quotas listed, want 4", n)
	}
	if _, err := r.w.AddFault(sim.Fault{Service: "servicequotas", Kind: sim.FaultThrottle}); err != nil {
		t.Fatal(err)
	}
	_, err = get("iam", quotaRoles)
	wantCode(t, err, "TooManyRequestsException")
}
