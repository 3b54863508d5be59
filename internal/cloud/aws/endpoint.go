package aws

import (
	"context"
	"net/url"
	"slices"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// awsDomains are what the names of AWS's own endpoints end in, those of FIPS, of
// dual-stack and of VPC interface endpoints too (AWS General Reference, "AWS
// service endpoints"; AWS PrivateLink Guide, "Access an AWS service using an
// interface VPC endpoint").
var awsDomains = []string{
	"amazonaws.com", "amazonaws.com.cn", "amazonaws.eu",
	"api.aws", "api.amazonwebservices.com.cn", "api.amazonwebservices.eu",
}

// foreignEndpoint reports whether EC2 is spoken to at an address that is not
// AWS's own, such as an emulator's. Somebody's own name for an interface endpoint
// counts as one, since it does not tell what is behind it.
func (p *Provider) foreignEndpoint() bool {
	at := p.ec2.Options().BaseEndpoint
	return at != nil && !isAWS(*at)
}

func isAWS(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	return slices.ContainsFunc(awsDomains, func(d string) bool { return strings.HasSuffix(host, "."+d) })
}

// endedVMs are the instances that the job has had and that have ended: those
// that the cloud shows as terminated, or no more. One that is still shutting down
// has its disk and its interface by right.
func (p *Provider) endedVMs(ctx context.Context, r *pipeline.Run) ([]string, error) {
	var ids []string
	for _, o := range r.Objects() {
		if o.Kind == kindInstance && o.State == job.ObjectRemoved && o.ID != "" {
			ids = append(ids, o.ID)
		}
	}
	for _, vm := range r.Job.Config.InfraConfig.VMs {
		ended := vm.State == job.VMTerminated || vm.State == job.VMTerminating
		if ended && vm.InstanceID != "" && !slices.Contains(ids, vm.InstanceID) {
			ids = append(ids, vm.InstanceID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	shown, err := p.byID(ctx, ids)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id string) bool {
		i, ok := shown[id]
		return ok && stateOf(i) != ec2types.InstanceStateNameTerminated
	}), nil
}
