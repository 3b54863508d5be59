package aws

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/acm"
	"github.com/aws/aws-sdk-go-v2/service/acm/types"

	"github.com/zopday/provisioner/internal/sim"
)

// ACMState is everything that Certificate Manager keeps, by account and region.
type ACMState struct {
	Scopes map[string]map[string]*Certificate // by ARN
}

// Certificate is a certificate that was asked for.
type Certificate struct {
	ARN, Domain, Status, Method, KeyAlgorithm string
	Names                                     []string
	Created                                   time.Time
	Issued                                    time.Time
	Token                                     string
	Serial, Idempotency                       string
	Tags                                      []Tag
}

// acmService is AWS Certificate Manager. A certificate is issued when its validation record is in a public hosted zone of
// the account, as it is when Route 53 hosts the domain.
type acmService struct {
	cloud *Cloud
	state *ACMState
}

const quotaCertificates = "L-F141DD1D"

func newACM(c *Cloud) *acmService {
	s := &acmService{cloud: c, state: &ACMState{}}
	c.World.DefineQuota(sim.Quota{Cloud: "aws", Service: "acm", Code: quotaCertificates, Name: "ACM certificates", Default: 2500, Unit: "None", Adjustable: true})
	c.World.Register(s)
	c.add(&api{
		service: "acm", sdkPrefix: "CertificateManager", protocol: jsonProtocol, version: "2015-12-08",
		ops: overJSON(map[string]typedOp{
			"RequestCertificate": op(s.requestCertificate), "DescribeCertificate": op(s.describeCertificate), "ListCertificates": op(s.listCertificates),
			"DeleteCertificate": op(s.deleteCertificate), "AddTagsToCertificate": op(s.addTags), "RemoveTagsFromCertificate": op(s.removeTags),
			"ListTagsForCertificate": op(s.listTags),
		}),
		encode: encodeJSON,
	})
	return s
}

// Cloud implements sim.Service.
func (s *acmService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *acmService) Name() string { return "acm" }

// State implements sim.Service.
func (s *acmService) State() any { return s.state }

// Reset implements sim.Service.
func (s *acmService) Reset() { s.state.Scopes = map[string]map[string]*Certificate{} }

func (s *acmService) in(sc scope) map[string]*Certificate {
	m := s.state.Scopes[sc.key()]
	if m == nil {
		m = map[string]*Certificate{}
		s.state.Scopes[sc.key()] = m
	}
	return m
}

// Objects implements sim.Service.
func (s *acmService) Objects() []sim.Object {
	var out []sim.Object
	for _, key := range sortedKeys(s.state.Scopes) {
		in := parseScopeKey(key)
		for _, arn := range sortedKeys(s.state.Scopes[key]) {
			c := s.state.Scopes[key][arn]
			out = append(out, sim.Object{Account: in.Account, Region: in.Region, Kind: "certificate", ID: arn, ARN: arn, Name: c.Domain, State: c.Status, Tags: tagMap(c.Tags), Data: c})
		}
	}
	return out
}

// SetState implements sim.Service.
func (s *acmService) SetState(id, state, _, _ string) error {
	for _, m := range s.state.Scopes {
		if c := m[id]; c != nil {
			c.Status = orText(state, "FAILED")
			if c.Status == "ISSUED" {
				c.Issued = s.cloud.World.Now()
			}
			return nil
		}
	}
	return fmt.Errorf("%s: no such certificate", id)
}

// Remove implements sim.Service.
func (s *acmService) Remove(id string) error {
	for _, m := range s.state.Scopes {
		if m[id] != nil {
			delete(m, id)
			return nil
		}
	}
	return fmt.Errorf("%s: no such certificate", id)
}

// Event implements sim.Service: Certificate Manager looks for the validation record.
func (s *acmService) Event(_, key string) {
	in, arn, _ := strings.Cut(key, "|")
	c := s.state.Scopes[in][arn]
	if c == nil || c.Status != "PENDING_VALIDATION" {
		return
	}
	now := s.cloud.World.Now()
	if c.Method == "DNS" && s.validated(parseScopeKey(in).Account, c) {
		c.Status, c.Issued = "ISSUED", now
		return
	}
	// "The certificate times out if validation takes more than 72 hours" (ACM user guide).
	if now.Sub(c.Created) > 72*time.Hour {
		c.Status = "VALIDATION_TIMED_OUT"
		return
	}
	s.cloud.after(time.Minute, "acm", "validate", key)
}

// validated says whether the records that prove the ownership of all names are in hosted zones of the account.
func (s *acmService) validated(account string, c *Certificate) bool {
	for _, name := range c.Names {
		record, value := c.proof(name)
		found := false
		for _, z := range s.cloud.platform.r53.state.account(account).Zones {
			found = found || !z.Private && slices.ContainsFunc(z.Records, func(r *DNSRecord) bool {
				return r.Type == "CNAME" && r.Name == record && len(r.Values) == 1 && normalName(r.Values[0]) == value
			})
		}
		if !found {
			return false
		}
	}
	return true
}

// proof is the record that proves the ownership of a name.
func (c *Certificate) proof(name string) (record, value string) {
	return "_" + c.Token[:32] + "." + normalName(strings.TrimPrefix(name, "*.")), "_" + c.Token[32:] + ".jkddzztszm.acm-validations.aws."
}

var certificateName = regexp.MustCompile(`^(\*\.)?(([A-Za-z0-9-]{0,62}[A-Za-z0-9])\.)+([A-Za-z0-9-]{1,62}[A-Za-z0-9])$`)

func (s *acmService) requestCertificate(c *reqCtx, in *acm.RequestCertificateInput) (*acm.RequestCertificateOutput, error) {
	names := append([]string{deref(in.DomainName)}, in.SubjectAlternativeNames...)
	for _, n := range names {
		if len(n) > 253 || !certificateName.MatchString(n) {
			return nil, fail(400, "ValidationException", "1 validation error detected: Value '%s' at 'domainName' failed to satisfy constraint: Member must satisfy regular expression pattern: (\\*\\.)?(((?!-)[A-Za-z0-9-]{0,62}[A-Za-z0-9])\\.)+((?!-)[A-Za-z0-9-]{1,62}[A-Za-z0-9])", n)
		}
	}
	slices.Sort(names[1:])
	names = slices.Compact(names)
	all := s.in(c.scope())
	// "Idempotency tokens time out after one hour" (RequestCertificate).
	for _, old := range all {
		if token := deref(in.IdempotencyToken); token != "" && old.Idempotency == token && c.now.Sub(old.Created) < time.Hour && slices.Equal(old.Names, names) {
			return &acm.RequestCertificateOutput{CertificateArn: &old.ARN}, nil
		}
	}
	if float64(len(all)) >= s.cloud.quota(c.scope(), "acm", quotaCertificates) {
		return nil, fail(400, "LimitExceededException", "Error: you have reached your limit of %d certificates in this region.", len(all))
	}
	cert := &Certificate{ARN: c.regionalARN("acm", "certificate/"+c.w.UUID()), Domain: names[0], Names: names, Status: "PENDING_VALIDATION",
		Method: orText(string(in.ValidationMethod), "EMAIL"), KeyAlgorithm: orText(string(in.KeyAlgorithm), "RSA_2048"), Created: c.now,
		Token: c.w.Hex("", 64), Serial: c.w.Hex("", 32), Idempotency: deref(in.IdempotencyToken)}
	for _, t := range in.Tags {
		cert.Tags = setTag(cert.Tags, deref(t.Key), deref(t.Value))
	}
	all[cert.ARN] = cert
	c.Make(cert.ARN)
	s.cloud.after(30*time.Second, "acm", "validate", c.scope().key()+"|"+cert.ARN)
	return &acm.RequestCertificateOutput{CertificateArn: &cert.ARN}, nil
}

func (s *acmService) certificate(c *reqCtx, arn *string) (*Certificate, error) {
	if !strings.HasPrefix(deref(arn), "arn:aws:acm:") {
		return nil, fail(400, "InvalidArnException", "The ARN '%s' is not valid.", deref(arn))
	}
	cert := s.in(c.scope())[*arn]
	if cert == nil || !c.visible(cert.ARN, cert.Created, false, "certificate", cert.Domain) {
		return nil, fail(400, "ResourceNotFoundException", "Could not find certificate %s.", *arn)
	}
	c.Touch(cert.ARN)
	return cert, nil
}

// certificateState is how the other services see a certificate.
func (c *Cloud) certificateState(in scope, arn string) (string, bool) {
	cert := c.platform.acm.in(in)[arn]
	if cert == nil {
		return "", false
	}
	return cert.Status, true
}

func (s *acmService) describeCertificate(c *reqCtx, in *acm.DescribeCertificateInput) (*acm.DescribeCertificateOutput, error) {
	cert, err := s.certificate(c, in.CertificateArn)
	if err != nil {
		return nil, err
	}
	out := &types.CertificateDetail{
		CertificateArn: &cert.ARN, DomainName: &cert.Domain, SubjectAlternativeNames: cert.Names, CreatedAt: &cert.Created, Status: types.CertificateStatus(cert.Status),
		Type: types.CertificateTypeAmazonIssued, KeyAlgorithm: types.KeyAlgorithm(cert.KeyAlgorithm), SignatureAlgorithm: new("SHA256WITHRSA"), InUseBy: []string{},
		RenewalEligibility: types.RenewalEligibilityIneligible, Subject: new("CN=" + cert.Domain), Issuer: new("Amazon"),
		//nolint:staticcheck // deprecated in the model, but the service still answers it
		Options: &types.CertificateOptions{CertificateTransparencyLoggingPreference: types.CertificateTransparencyLoggingPreferenceEnabled, Export: types.CertificateExportDisabled},
	}
	status := types.DomainStatusPendingValidation
	if cert.Status == "ISSUED" {
		status = types.DomainStatusSuccess
		end := cert.Issued.AddDate(0, 13, 0)
		out.IssuedAt, out.NotBefore, out.NotAfter, out.Serial = &cert.Issued, &cert.Issued, &end, &cert.Serial
		out.RenewalEligibility = types.RenewalEligibilityEligible
	}
	for _, name := range cert.Names {
		record, value := cert.proof(name)
		out.DomainValidationOptions = append(out.DomainValidationOptions, types.DomainValidation{DomainName: new(name), ValidationDomain: new(name), ValidationStatus: status,
			ValidationMethod: types.ValidationMethod(cert.Method), ResourceRecord: &types.ResourceRecord{Name: &record, Type: types.RecordTypeCname, Value: &value}})
	}
	for _, sc := range s.cloud.platform.elb.state.Scopes {
		for _, l := range sc.Listeners {
			if slices.Contains(l.Certificates, cert.ARN) {
				out.InUseBy = append(out.InUseBy, l.Balancer)
			}
		}
	}
	return &acm.DescribeCertificateOutput{Certificate: out}, nil
}

func (s *acmService) listCertificates(c *reqCtx, in *acm.ListCertificatesInput) (*acm.ListCertificatesOutput, error) {
	m, all := s.in(c.scope()), []types.CertificateSummary{}
	for _, arn := range sortedKeys(m) {
		cert := m[arn]
		if len(in.CertificateStatuses) > 0 && !slices.Contains(in.CertificateStatuses, types.CertificateStatus(cert.Status)) || !c.visible(arn, cert.Created, true, "certificate", cert.Domain) {
			continue
		}
		all = append(all, types.CertificateSummary{CertificateArn: &cert.ARN, DomainName: &cert.Domain, SubjectAlternativeNameSummaries: cert.Names, Status: types.CertificateStatus(cert.Status),
			Type: types.CertificateTypeAmazonIssued, KeyAlgorithm: types.KeyAlgorithm(cert.KeyAlgorithm), CreatedAt: &cert.Created, RenewalEligibility: types.RenewalEligibilityIneligible,
			HasAdditionalSubjectAlternativeNames: new(false), InUse: new(false)})
	}
	page, next, err := pageOf(c, all, in.NextToken, int(orDefault(in.MaxItems, 100)))
	if err != nil {
		return nil, fail(400, "ValidationException", "Invalid NextToken.")
	}
	return &acm.ListCertificatesOutput{CertificateSummaryList: page, NextToken: next}, nil
}

func (s *acmService) deleteCertificate(c *reqCtx, in *acm.DeleteCertificateInput) (*acm.DeleteCertificateOutput, error) {
	cert, err := s.certificate(c, in.CertificateArn)
	if err != nil {
		return nil, err
	}
	for _, l := range s.cloud.platform.elb.state.in(c.scope()).Listeners {
		if slices.Contains(l.Certificates, cert.ARN) {
			return nil, fail(400, "ResourceInUseException", "Certificate %s in account %s is in use.", cert.ARN, c.account)
		}
	}
	delete(s.in(c.scope()), cert.ARN)
	return &acm.DeleteCertificateOutput{}, nil
}

func (s *acmService) addTags(c *reqCtx, in *acm.AddTagsToCertificateInput) (*acm.AddTagsToCertificateOutput, error) {
	cert, err := s.certificate(c, in.CertificateArn)
	if err != nil {
		return nil, err
	}
	for _, t := range in.Tags {
		cert.Tags = setTag(cert.Tags, deref(t.Key), deref(t.Value))
	}
	return &acm.AddTagsToCertificateOutput{}, nil
}

func (s *acmService) removeTags(c *reqCtx, in *acm.RemoveTagsFromCertificateInput) (*acm.RemoveTagsFromCertificateOutput, error) {
	cert, err := s.certificate(c, in.CertificateArn)
	if err != nil {
		return nil, err
	}
	for _, t := range in.Tags {
		cert.Tags = dropTags(cert.Tags, []string{deref(t.Key)})
	}
	return &acm.RemoveTagsFromCertificateOutput{}, nil
}

func (s *acmService) listTags(c *reqCtx, in *acm.ListTagsForCertificateInput) (*acm.ListTagsForCertificateOutput, error) {
	cert, err := s.certificate(c, in.CertificateArn)
	if err != nil {
		return nil, err
	}
	out := &acm.ListTagsForCertificateOutput{Tags: []types.Tag{}}
	for _, t := range cert.Tags {
		out.Tags = append(out.Tags, types.Tag{Key: new(t.Key), Value: new(t.Value)})
	}
	return out, nil
}
