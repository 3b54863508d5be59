package aws

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// post sends a form to EC2 and answers status and body.
func (l *lab) post(form url.Values) (int, string) {
	req, err := http.NewRequest(http.MethodPost, l.url, strings.NewReader(form.Encode()))
	if err != nil {
		l.Fatal(err)
	}
	now := time.Now().UTC()
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-Amz-Date", now.Format("20060102T150405Z"))
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/"+now.Format("20060102")+"/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		l.Fatalf("%v: %v", form, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		l.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Whatever is sent to whatever operation, it is answered or refused: nothing breaks, and nothing is answered with an
// internal error.
func TestHostileForms(t *testing.T) {
	s := newScene(t)
	rng := rand.New(rand.NewPCG(1, 2))
	words := []string{"", "x", "-1", "0", "99999999999999999999", "true", "10.0.0.0/16", "10.0.5.0/24", "::/0", "0.0.0.0/0", "tcp", "vpc-", "i-0", "\x00", "ä☃", strings.Repeat("z", 3000),
		s.vpc, s.public, s.private, s.igw, s.nat, s.eip, s.privateTable, s.group, s.instance, s.volume, s.eni, s.template, s.peering, "default", "us-east-1a", "t3.micro", "vpc", "instance",
		"$Latest", "disableApiTermination", "bm90IGEgc2NyaXB0", "[]", "<a>&amp;", "../../etc/passwd"}
	names := []string{"VpcId", "SubnetId", "GroupId", "InstanceId", "InstanceId.1", "ResourceId.1", "RouteTableId", "AllocationId", "CidrBlock", "DestinationCidrBlock", "GatewayId", "NatGatewayId",
		"InternetGatewayId", "NetworkInterfaceId", "VolumeId", "LaunchTemplateId", "LaunchTemplateName", "LaunchTemplateData.UserData", "LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize",
		"MinCount", "MaxCount", "ImageId", "InstanceType", "Attribute", "Value", "Tag.1.Key", "Tag.1.Value", "TagSpecification.1.ResourceType", "TagSpecification.1.Tag.1.Key",
		"Filter.1.Name", "Filter.1.Value.1", "Filter.7.Name", "Filter.007.Name", "InstanceId.01", "MaxResults", "NextToken", "GroupName", "GroupDescription", "IpPermissions.1.IpProtocol", "IpPermissions.1.FromPort", "IpPermissions.1.ToPort",
		"IpPermissions.1.IpRanges.1.CidrIp", "IpPermissions.1.Groups.1.GroupId", "AssociationId", "AttachmentId", "ClientToken", "VpcPeeringConnectionId", "PeerVpcId", "VpcEndpointId.1", "ServiceName",
		"KeyName", "PublicKeyMaterial", "SnapshotId", "SecurityGroupRuleId.1", "Size", "AvailabilityZone", "LocationType", "EnableDnsSupport.Value", "LaunchTemplateVersion.1", "Device",
		"SubnetId.1.Nested.Deep", "Filter", "Tag", ".", "..", "1", "LaunchTemplate.LaunchTemplateId", "LaunchTemplate.Version", "IamInstanceProfile.Name", "NetworkInterface.1.DeviceIndex"}
	for _, op := range sortedKeys(s.cloud.apis["ec2"].ops) {
		for range 25 {
			form := url.Values{"Action": {op}, "Version": {"2016-11-15"}}
			for range rng.IntN(8) {
				form.Set(names[rng.IntN(len(names))], words[rng.IntN(len(words))])
			}
			status, body := s.post(form)
			if status >= 500 || strings.Contains(body, "InternalError") {
				t.Errorf("%v: %d %s", form, status, body)
			}
		}
		s.step(time.Second)
	}
}

// A form of many thousand parameters must not keep everybody else waiting.
func TestHugeForm(t *testing.T) {
	l := newLab(t, sim.Options{})
	form := url.Values{"Action": {"DescribeInstances"}, "Version": {"2016-11-15"}}
	for i := range 20000 {
		form.Set("Filter."+strings.Repeat("1", 1+i%3)+string(rune('0'+i%10))+".Value."+strings.Repeat("9", i%5)+string(rune('0'+i%10)), "x")
		form.Set("InstanceId."+string(rune('0'+i%10))+strings.Repeat("3", i%6), "i-0123456789abcdef0")
	}
	for i := range 15000 {
		form.Set("Unknown"+strings.Repeat("x", i%40)+"."+string(rune('a'+i%26))+"."+string(rune('a'+i/26%26))+string(rune('a'+i/676%26)), "y")
	}
	start := time.Now()
	if status, body := l.post(form); status != 400 {
		t.Errorf("%d %.200s", status, body)
	}
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("it took %v", d)
	}
}
