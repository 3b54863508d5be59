package aws

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// simulatePrincipal says which actions a principal may do, by the same grants that every call is held to. Conditions,
// resources and further policies in the request are not looked at.
func (s *iamService) simulatePrincipal(c *reqCtx, in *iam.SimulatePrincipalPolicyInput) (*iam.SimulatePrincipalPolicyOutput, error) {
	source := deref(in.PolicySourceArn)
	if err := checkPolicyARN(in.PolicySourceArn); err != nil {
		return nil, err
	}
	caller, err := s.grantee(c, source)
	if err != nil {
		return nil, err
	}
	all := []types.EvaluationResult{}
	for _, action := range in.ActionNames {
		if prefix, name, ok := strings.Cut(action, ":"); !ok || prefix == "" || name == "" {
			return nil, fail(400, "InvalidInput", "Invalid action: %s", action)
		}
		decision := types.PolicyEvaluationDecisionTypeImplicitDeny
		if c.w.Granted("aws", caller, action) {
			decision = types.PolicyEvaluationDecisionTypeAllowed
		}
		all = append(all, types.EvaluationResult{EvalActionName: new(action), EvalDecision: decision, EvalResourceName: new("*"),
			MatchedStatements: []types.Statement{}, MissingContextValues: []string{}})
	}
	page, marker, err := iamPage(c, all, in.Marker, in.MaxItems)
	return &iam.SimulatePrincipalPolicyOutput{EvaluationResults: page, IsTruncated: marker != nil, Marker: marker}, err
}

// grantee is what the books call a principal: the key of a user who calls, the ARN of a role.
func (s *iamService) grantee(c *reqCtx, source string) (string, error) {
	who := c.caller()
	switch {
	case strings.Contains(source, ":assumed-role/"):
		return "", fail(400, "InvalidInput", "Invalid Entity Arn: %s does not clearly define entity type and name.", source)
	case source == who.ARN || source == who.Role:
		return c.Caller, nil
	case s.roleByARN(source) != nil:
		return source, nil
	}
	return "", fail(404, "NoSuchEntity", "%s cannot be found.", source)
}
