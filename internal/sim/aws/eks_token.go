package aws

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/zopday/provisioner/internal/sim"
)

// A token of EKS is a presigned request of STS's GetCallerIdentity, which EKS sends to find out who has signed it. The
// checks are those of the authenticator that EKS runs (https://github.com/kubernetes-sigs/aws-iam-authenticator, package
// token).
const (
	tokenMark   = "k8s-aws-v1." //nolint:gosec // what such a token begins with
	tokenSize   = 4096
	tokenLasts  = 15 * time.Minute
	clusterHead = "x-k8s-aws-id"
)

// tokenParams are the parameters that a token's URL may have.
var tokenParams = []string{"action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-security-token", "x-amz-signature",
	"x-amz-signedheaders", "x-amz-user-agent"}

// presigned is the request in a token.
type presigned struct {
	url                 *url.URL
	scope               credentialScope
	signature, security string
}

// readToken takes a token apart, and refuses one that EKS would not send to STS.
func readToken(token string, now time.Time) (p presigned, ok bool) {
	text, marked := strings.CutPrefix(token, tokenMark)
	if !marked || len(token) > tokenSize {
		return p, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return p, false
	}
	if p.url, err = url.Parse(string(raw)); err != nil || p.url.Path != "/" && p.url.Path != "" {
		return p, false
	}
	region, ok := stsRegion(p.url)
	if !ok {
		return p, false
	}
	q := p.url.Query()
	for key, values := range q {
		if !slices.Contains(tokenParams, strings.ToLower(key)) || len(values) != 1 {
			return p, false
		}
	}
	expires, err := strconv.Atoi(q.Get("X-Amz-Expires"))
	if err != nil || expires < 0 || expires > 900 || q.Get("Action") != "GetCallerIdentity" ||
		!slices.Contains(strings.Split(strings.ToLower(q.Get("X-Amz-SignedHeaders")), ";"), clusterHead) {
		return p, false
	}
	p.scope, ok = parseScope(&http.Request{Header: http.Header{}, URL: p.url})
	p.signature, p.security = q.Get("X-Amz-Signature"), q.Get("X-Amz-Security-Token")
	if !ok || p.signature == "" || p.scope.service != "sts" || region != "" && region != p.scope.region || p.scope.signed.IsZero() ||
		now.After(p.scope.signed.Add(tokenLasts)) || p.scope.signed.After(now.Add(maxSkew)) {
		return p, false
	}
	return p, true
}

// stsRegion says which region's STS a URL leads to; empty means any. The simulation's own address counts as STS's: that is
// where clients of it find STS.
func stsRegion(u *url.URL) (region string, ok bool) {
	host := u.Hostname()
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return "", true
	}
	if u.Scheme != "https" {
		return "", false
	}
	if host == "sts.amazonaws.com" {
		return "us-east-1", true
	}
	region = strings.TrimSuffix(strings.TrimPrefix(host, "sts."), ".amazonaws.com")
	_, known := regions[region]
	return region, known && host == "sts."+region+".amazonaws.com"
}

// authenticate says who the bearer of a token is in a cluster; now is the real time, in which requests are signed. The world
// must not be locked.
func (s *eksService) authenticate(arn, id, token string, now time.Time) (sim.KubeUser, bool) {
	p, ok := readToken(token, now)
	if !ok {
		return sim.KubeUser{}, false
	}
	who, ok := s.cloud.identify(p.scope.accessKey)
	if !ok {
		return sim.KubeUser{}, false
	}
	s.cloud.World.Lock()
	defer s.cloud.World.Unlock()
	k := s.byID(arn, id)
	if k == nil || !k.running() || !who.Expires.IsZero() && !s.cloud.World.Now().Before(who.Expires) {
		return sim.KubeUser{}, false
	}
	if secret, known := s.cloud.platform.sts.secret(p.scope.accessKey); known && !p.signedFor(k.Name, secret) {
		return sim.KubeUser{}, false
	}
	if who.ARN == "" && s.cloud.hooks.identityOf != nil {
		who, _ = s.cloud.hooks.identityOf(who.Account, who.AccessKey)
	}
	return s.user(k, who)
}

// signedFor says whether the signature is that of a secret over a request that names a cluster in its header. The header
// itself is not in the token: whoever checks it puts in the name of the cluster that was asked, so that a token for one
// cluster is worth nothing at another.
func (p presigned) signedFor(cluster, secret string) bool {
	u := *p.url
	q := u.Query()
	for _, key := range []string{"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Signature", "X-Amz-SignedHeaders"} {
		q.Del(key)
	}
	u.RawQuery = q.Encode()
	r := &http.Request{Method: http.MethodGet, URL: &u, Host: u.Host, Header: http.Header{}}
	r.Header.Set(clusterHead, cluster)
	nothing := sha256.Sum256(nil)
	signed, _, err := v4.NewSigner().PresignHTTP(context.Background(), awssdk.Credentials{AccessKeyID: p.scope.accessKey, SecretAccessKey: secret, SessionToken: p.security}, r,
		hex.EncodeToString(nothing[:]), p.scope.service, p.scope.region, p.scope.signed)
	if err != nil {
		return false
	}
	want, err := url.Parse(signed)
	return err == nil && want.Query().Get("X-Amz-Signature") == p.signature
}

// user is who an identity is in a cluster: by its access entry or, where the mode knows none, as the cluster's creator.
func (s *eksService) user(k *EKSCluster, who Identity) (sim.KubeUser, bool) {
	principal := s.principal(who)
	if k.AuthMode == "CONFIG_MAP" {
		return sim.KubeUser{Name: "kubernetes-admin", Groups: []string{"system:masters"}}, principal == k.Creator
	}
	e := k.Entries[principal]
	if e == nil || s.cloud.World.Now().Sub(e.Created) < s.settles(e.ARN) {
		return sim.KubeUser{}, false
	}
	_, session, _ := strings.Cut(who.ARN, ":assumed-role/")
	_, session, _ = strings.Cut(session, "/")
	name := strings.NewReplacer("{{SessionName}}", strings.ReplaceAll(session, "@", "-"), "{{SessionNameRaw}}", session, "{{AccountID}}", who.Account).Replace(e.Username)
	user := sim.KubeUser{Name: name, Groups: append([]string{}, e.Groups...)}
	for _, p := range e.Policies {
		if s.cloud.World.Now().Sub(p.Modified) >= s.settles(e.ARN+p.ARN) {
			user.Groups = append(user.Groups, p.groups()...)
		}
	}
	return user, true
}

// settles is how long an access entry or policy takes to reach the API server: "may take several seconds".
func (s *eksService) settles(id string) time.Duration {
	return s.cloud.platform.iam.propagation(id) / 2
}

// groups are the Kubernetes groups that an access policy stands for: EKS authorises by the policies themselves; here the
// administrator's is the group that the API server lets do everything, and each of the others a group of its own, with the
// namespace at its end where it is bound to some.
func (p *EKSAccessPolicy) groups() []string {
	name := strings.TrimPrefix(p.ARN, accessPolicyPrefix)
	if p.Scope == "cluster" {
		if name == "AmazonEKSClusterAdminPolicy" {
			return []string{"system:masters"}
		}
		return []string{"eks:access-policy:" + name}
	}
	var out []string
	for _, ns := range p.Namespaces {
		out = append(out, "eks:access-policy:"+name+":"+ns)
	}
	return out
}
