package aws

import (
	"encoding/json"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/sim"
)

func TestClusterOfSomebodyElse(t *testing.T) {
	y := newYard(t, immediate)
	_, err := y.w.Invoke("aws", "eks", "CreateCluster", testAccount, "us-east-1", map[string]any{"name": "theirs", "roleArn": y.clusterRole, "tags": map[string]any{"owner": "them"},
		"resourcesVpcConfig": map[string]any{"subnetIds": y.private}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.w.SetObjectState("theirs", "ACTIVE", "", ""); err != nil {
		t.Fatal(err)
	}
	k := y.describe(t, "theirs")
	if k.Status != types.ClusterStatusActive || k.Endpoint == nil || k.ResourcesVpcConfig.ClusterSecurityGroupId == nil {
		t.Fatalf("cluster %+v", k)
	}
	if left := y.w.Residue("them"); len(left) != 1 || left[0].Kind != "cluster" {
		t.Errorf("residue %+v", left)
	}
	if _, err := y.w.PatchObject("theirs", json.RawMessage(`{"Public":false,"Private":true,"Version":"1.34"}`)); err != nil {
		t.Fatal(err)
	}
	if k = y.describe(t, "theirs"); *k.Version != "1.34" || k.ResourcesVpcConfig.EndpointPublicAccess {
		t.Errorf("cluster %+v", k)
	}
	if e := y.w.Books(sim.BookFilter{Service: "eks", Operation: "CreateCluster"}); len(e) != 0 {
		t.Errorf("books %+v", e)
	}
	if _, err := y.w.RemoveObject("theirs"); err != nil {
		t.Fatal(err)
	}
	_, err = y.eks.DescribeCluster(y.ctx(), &eks.DescribeClusterInput{Name: awssdk.String("theirs")})
	wantCode(t, err, "ResourceNotFoundException")
}

func TestBooksOfClusters(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	must(y.eks.ListInsights(y.ctx(), &eks.ListInsightsInput{ClusterName: awssdk.String("prod")}))(t)
	must(y.eks.UpdateClusterConfig(y.ctx(), &eks.UpdateClusterConfigInput{Name: awssdk.String("prod"), DeletionProtection: awssdk.Bool(true)}))(t)
	want := map[string]bool{"CreateCluster": true, "DescribeCluster": false, "ListInsights": false, "UpdateClusterConfig": true}
	for _, e := range y.w.Books(sim.BookFilter{Service: "eks"}) {
		if mutating, ok := want[e.Operation]; !ok || e.Mutating != mutating || !e.Done || e.Account != testAccount || len(e.Resources) == 0 {
			t.Errorf("entry %+v", e)
		}
		delete(want, e.Operation)
	}
	if len(want) != 0 {
		t.Errorf("not in the books: %v", want)
	}
}

func TestFaultsOnClusters(t *testing.T) {
	y := newYard(t, immediate)
	fault := func(f sim.Fault) {
		t.Helper()
		f.Service = "eks"
		if _, err := y.w.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	fault(sim.Fault{Operation: "CreateCluster", Kind: sim.FaultSwallow})
	must(y.eks.CreateCluster(y.ctx(), y.clusterInput("prod")))(t)
	_, err := y.eks.DescribeCluster(y.ctx(), &eks.DescribeClusterInput{Name: awssdk.String("prod")})
	wantCode(t, err, "ResourceNotFoundException")
	y.cluster(t, "prod")
	fault(sim.Fault{Kind: sim.FaultHidden, Match: "job-1", Count: 2})
	for range 2 {
		_, err = y.eks.DescribeCluster(y.ctx(), &eks.DescribeClusterInput{Name: awssdk.String("prod")})
		wantCode(t, err, "ResourceNotFoundException")
	}
	y.describe(t, "prod")
	fault(sim.Fault{Kind: sim.FaultThrottle})
	_, err = y.eks.DescribeCluster(y.ctx(), &eks.DescribeClusterInput{Name: awssdk.String("prod")})
	wantCode(t, err, "ThrottlingException")
	fault(sim.Fault{Kind: sim.FaultPage, Mode: "empty", Operation: "ListClusters"})
	out := must(y.eks.ListClusters(y.ctx(), &eks.ListClustersInput{}))(t)
	if len(out.Clusters) != 0 || out.NextToken == nil {
		t.Errorf("page %+v", out)
	}
	_, err = y.eks.ListCapabilities(y.ctx(), &eks.ListCapabilitiesInput{ClusterName: awssdk.String("prod")})
	wantCode(t, err, "UnknownOperationException")
}

// TestClusterInHaste: with the delays that there are by default, a life without a wait for them sees what is not there yet
// and goes on.
func TestClusterInHaste(t *testing.T) {
	y := newYard(t, sim.Options{Seed: 7})
	must(y.eks.CreateCluster(y.ctx(), y.clusterInput("prod")))(t)
	seen := false
	for range 10 {
		_, err := y.eks.DescribeCluster(y.ctx(), &eks.DescribeClusterInput{Name: awssdk.String("prod")})
		if seen = err == nil; seen {
			break
		}
		wantCode(t, err, "ResourceNotFoundException")
		y.w.Step(200 * time.Millisecond)
	}
	if !seen {
		t.Fatal("the cluster does not show")
	}
	y.w.Step(10 * time.Minute)
	y.addons(t, "prod")
	y.pool(t, "prod", "workers")
}
