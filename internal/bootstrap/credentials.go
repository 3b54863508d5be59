package bootstrap

import (
	"fmt"
	"regexp"
	"strings"
)

// A CredentialError says that a text meant for user data seems to hold a credential. Anyone who
// may describe an instance, and every process on it, can read its user data. The error names the
// kind and the line, never the value.
type CredentialError struct {
	Pattern string
	Line    int
}

func (e *CredentialError) Error() string {
	return fmt.Sprintf("user data, line %d: looks like %s; user data is readable by anyone who may describe the instance: fetch it at run time with the instance's own identity",
		e.Line, e.Pattern)
}

type credentialPattern struct {
	name string
	re   *regexp.Regexp
}

// A value that starts with $ or a backquote is worked out on the VM, and so is no literal.
var credentialPatterns = []credentialPattern{
	{"a private key in PEM form", regexp.MustCompile(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`)},
	{"an AWS access key ID", regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z2-7]{16}\b`)},
	{"an AWS secret access key", regexp.MustCompile(`(?i)secret_?access_?key["']?\s*[=:]?\s*["']?[A-Za-z0-9/+=]{40}(?:[^A-Za-z0-9/+=]|$)`)},
	{"a password in a URL", regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^/\\s:@\"']*:[^/\\s@\"'$`][^/\\s@\"'`]*@")},
	{"a GitHub token", regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22})`)},
	{"a GitLab token", regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20}`)},
	{"a Slack token", regexp.MustCompile(`\bxox[abprs]-[A-Za-z0-9-]{10}`)},
	{"a Google API key", regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}`)},
	{"an Azure storage key", regexp.MustCompile(`(?i)AccountKey=[A-Za-z0-9/+]{86}==`)},
	{"a bearer token", regexp.MustCompile(`(?i)authorization:\s*(?:bearer|basic)\s+[A-Za-z0-9._~+/-]{16}`)},
	{"a password or token set to a literal", regexp.MustCompile("(?i)(?:password|passwd|passphrase|secret|token|api_?key)[\"']?\\s*[=:]\\s*(?:\"[^\"$`\\s/<][^\"$`\\s]{5,}\"|'[^'\\s/<][^'\\s]{5,}'|[^\"'$`\\s/<(;&|][^\"'$`\\s;&|]{5,})")},
}

// CheckCredentials returns a *CredentialError for the first thing in text that looks like a
// credential, nil if there is none.
func CheckCredentials(text string) error {
	first := -1
	name := ""
	for _, p := range credentialPatterns {
		at := p.re.FindStringIndex(text)
		if at != nil && (first < 0 || at[0] < first) {
			first, name = at[0], p.name
		}
	}
	if first < 0 {
		return nil
	}
	return &CredentialError{Pattern: name, Line: 1 + strings.Count(text[:first], "\n")}
}
