package gcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	cloudresourcemanager "google.golang.org/api/cloudresourcemanager/v3"
	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

var _ cloud.AccountChecker = (*Provider)(nil)

// CallerIdentity asks Google who the credentials are, and for the project that they
// are used in. The project's name and its regions are left out where they may not
// be read.
func (p *Provider) CallerIdentity(ctx context.Context) (cloud.CallerIdentity, error) {
	var who cloud.CallerIdentity
	if p.project == "" {
		_, err := p.Caller(ctx)
		return who, err
	}
	project, err := send(ctx, p.crm.Projects.Get("projects/"+p.project))
	switch {
	case err == nil:
		who.Holder, who.Name = project.ProjectId, project.DisplayName
	case pipeline.Is(err, pipeline.Denied) || switchedOff(err):
		// Compute Engine says as well whether the project is there.
		out, err := send(ctx, p.compute.Projects.Get(p.project).Fields("name"))
		if err != nil {
			return who, explained(p.neverEnabled(ctx, err))
		}
		who.Holder = out.Name
	default:
		return who, err
	}
	if who.Principal, err = p.principal(ctx); err != nil {
		return who, err
	}
	regions, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*compute.Region, *string, error) {
		out, err := send(ctx, p.compute.Regions.List(p.project).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		return out.Items, &out.NextPageToken, nil
	})
	if err != nil && !pipeline.Is(err, pipeline.Denied) && !switchedOff(err) {
		return who, err
	}
	for _, r := range regions {
		if r.Status == "UP" {
			who.Regions = append(who.Regions, r.Name)
		}
	}
	slices.Sort(who.Regions)
	return who, nil
}

// principal is who the credentials are: as the account says where Google has just
// given a token for that, and as the token itself says for the process's own.
func (p *Provider) principal(ctx context.Context) (string, error) {
	if p.config.Principal != "" {
		return p.config.Principal, nil
	}
	if p.config.Token == nil {
		return "nobody: no credentials are configured", nil
	}
	token, err := p.accessToken(ctx)
	if err != nil {
		return "", err
	}
	at := or(p.config.endpoint(serviceTokens), "https://oauth2.googleapis.com/") + "tokeninfo"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := p.config.tokenClient(nil).Do(req)
	if err != nil {
		return "", classifyTransport(serviceTokens, "tokeninfo", true, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSubjectToken))
	if err != nil {
		return "", classifyTransport(serviceTokens, "tokeninfo", true, err)
	}
	var info struct {
		Email string `json:"email"`
		Azp   string `json:"azp"`
	}
	if resp.StatusCode != http.StatusOK || json.Unmarshal(body, &info) != nil || info.Email == "" && info.Azp == "" {
		return "the process's own identity, which Google does not name", nil // a federated one, such as
	}
	return or(info.Email, "the account with the ID "+info.Azp), nil
}

// mostAsked is how many permissions one call takes ("Method:
// projects.testIamPermissions").
const mostAsked = 100

// Permissions asks the project which of a family's permissions the caller lacks.
// What is granted on a single object alone, such as a shared subnet of another
// project, does not show on the project and counts as missing.
func (p *Provider) Permissions(ctx context.Context, family job.ResourceType, readOnly bool) (cloud.PermissionReport, error) {
	report := cloud.PermissionReport{Family: family}
	policy, ok := PolicyOf(family, readOnly)
	if !ok {
		report.Unknown = fmt.Sprintf("jobs of the family %s need nothing of Google Cloud but to reach the cluster that they are for", family)
		return report, nil
	}
	var granted []string
	for asked := range slices.Chunk(slices.Concat(policy.Required, policy.Checks), mostAsked) {
		out, err := send(ctx, p.crm.Projects.TestIamPermissions("projects/"+p.project, &cloudresourcemanager.TestIamPermissionsRequest{Permissions: asked}))
		if pipeline.Is(err, pipeline.Denied, pipeline.NotFound) || switchedOff(err) {
			report.Unknown = "project " + p.project + " could not be asked: " + strings.TrimSuffix(err.Error(), ".")
			return report, nil
		}
		if err != nil {
			return report, err
		}
		granted = append(granted, out.Permissions...)
	}
	lacks := func(want []string) []string {
		return slices.DeleteFunc(slices.Clone(want), func(w string) bool { return slices.Contains(granted, w) })
	}
	report.Missing, report.Checks = lacks(policy.Required), lacks(policy.Checks)
	return report, nil
}
