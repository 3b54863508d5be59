package aws

import (
	"context"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/zopday/provisioner/internal/sim"
)

// A list may become shorter between two of its pages: the token stays good, and
// what was there all the time is listed once.
func TestListsThatShrinkBetweenPages(t *testing.T) {
	ctx := context.Background()
	for _, empty := range []float64{-1, 1} {
		l := newLab(t, sim.Options{ConsistencyByID: -1, ConsistencyByList: -1, EmptyPages: empty, PageSize: 2})
		first := ok(l.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{MaxResults: awssdk.Int32(5)}))
		for len(first.Subnets) == 0 {
			first = ok(l.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{MaxResults: awssdk.Int32(5), NextToken: first.NextToken}))
		}
		all := map[string]int{}
		for p := ec2.NewDescribeSubnetsPaginator(l.client, &ec2.DescribeSubnetsInput{MaxResults: awssdk.Int32(5)}); p.HasMorePages(); {
			for _, s := range ok(p.NextPage(ctx)).Subnets {
				all[*s.SubnetId] = 0
			}
		}
		for _, s := range first.Subnets { // both of the first page go
			delete(all, *s.SubnetId)
			ok(l.world.RemoveObject(*s.SubnetId))
		}
		if len(all) != 4 {
			t.Fatalf("%d subnets stay, want 4", len(all))
		}
		for token := first.NextToken; token != nil; {
			out := ok(l.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{MaxResults: awssdk.Int32(5), NextToken: token}))
			for _, s := range out.Subnets {
				all[*s.SubnetId]++
			}
			token = out.NextToken
		}
		for id, n := range all {
			if n != 1 {
				t.Errorf("empty pages %v: %s was listed %d times", empty, id, n)
			}
		}
		// Everything that is left goes before the second page.
		first = ok(l.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{MaxResults: awssdk.Int32(5)}))
		for id := range all {
			ok(l.world.RemoveObject(id))
		}
		if out, err := l.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{MaxResults: awssdk.Int32(5), NextToken: first.NextToken}); err != nil || len(out.Subnets) != 0 {
			t.Errorf("the page after everything went: %v", err)
		}
	}
}

// The pages of the other services keep to the same.
func TestTokenBeyondTheEnd(t *testing.T) {
	l := newLab(t, atOnce)
	c := &reqCtx{w: l.world, call: &sim.Call{Cloud: "aws", Operation: "List"}}
	token := encodeToken(3)
	if page, next, err := pageOf(c, []int{1}, &token, 2); err != nil || next != nil || len(page) != 0 {
		t.Errorf("got %v, %v, %v", page, next, err)
	}
	token = "nonsense"
	if _, _, err := pageOf(c, []int{1}, &token, 2); err == nil {
		t.Error("a token of no list was taken")
	}
}
