package bootstrap

import (
	"errors"
	"strings"
	"testing"
)

// The samples are put together here so that no scanner takes this file for a leak.
func TestCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	word := strings.Repeat("aB3dE5gH", 5)
	for _, tc := range []struct{ name, text, secret, pattern string }{
		{"access key", "aws configure set x " + "AKIA" + "ABCDEFGH234567AB", "ABCDEFGH234567AB", "AWS access key ID"},
		{"session key", "ASIA" + "ABCDEFGH234567AB", "ABCDEFGH234567AB", "AWS access key ID"},
		{"secret key", "export AWS_SECRET_ACCESS_KEY=" + word, word, "AWS secret access key"},
		{"secret key as an argument", "aws configure set aws_secret_access_key " + word, word, "AWS secret access key"},
		{"secret key in JSON", `{"SecretAccessKey": "` + word + `"}`, word, "AWS secret access key"},
		{"RSA key", "cat <<E\n-----BEGIN RSA PRIVATE" + " KEY-----\nMIIE\nE", "MIIE", "private key"},
		{"PKCS 8 key", "-----BEGIN PRIVATE" + " KEY-----", "BEGIN", "private key"},
		{"OpenSSH key", "-----BEGIN OPENSSH PRIVATE" + " KEY-----", "BEGIN", "private key"},
		{"PGP key", "-----BEGIN PGP PRIVATE" + " KEY BLOCK-----", "BEGIN", "private key"},
		{"password in a URL", "git clone https://me:s3cr3tword@git.example.test/x", "s3cr3tword", "password in a URL"},
		{"password with a variable user", "psql postgres://$USER:s3cr3tword@db/x", "s3cr3tword", "password in a URL"},
		{"GitHub", "ghp_" + word[:36], word[:36], "GitHub token"},
		{"GitLab", "glpat-" + word[:20], word[:20], "GitLab token"},
		{"Slack", "xoxb-" + word[:20], word[:20], "Slack token"},
		{"Google", "AIza" + word[:35], word[:35], "Google API key"},
		{"Azure", "AccountKey=" + strings.Repeat("a", 86) + "==", "aaaaaaaa", "Azure storage key"},
		{"bearer", "curl -H 'Authorization: Bearer " + word + "'", word, "bearer token"},
		{"password", "DB_PASSWORD=correcthorse", "correcthorse", "set to a literal"},
		{"quoted password", `password: "correcthorse"`, "correcthorse", "set to a literal"},
		{"token", "export API_TOKEN='correcthorse'", "correcthorse", "set to a literal"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := UserData(Options{Cloud: CloudAWS, OS: OSUbuntu, Extra: "#!/bin/sh\n" + tc.text + "\n"})
			var found *CredentialError
			if !errors.As(err, &found) {
				t.Fatalf("err = %v", err)
			}
			if !strings.Contains(found.Pattern, tc.pattern) {
				t.Errorf("named %q, want %q", found.Pattern, tc.pattern)
			}
			if want := 2 + strings.Count(tc.text[:strings.Index(tc.text, tc.secret)], "\n"); tc.name != "RSA key" && found.Line != want {
				t.Errorf("line %d, want %d", found.Line, want)
			}
			if strings.Contains(err.Error(), tc.secret) {
				t.Errorf("the message gives the value away: %s", err)
			}
		})
	}
	t.Run("in the repository URL", func(t *testing.T) {
		t.Parallel()
		_, _, err := UserData(Options{Cloud: CloudAWS, OS: OSUbuntu, DockerRepo: "https://me:s3cr3tword@mirror.example.test"})
		var found *CredentialError
		if !errors.As(err, &found) || strings.Contains(err.Error(), "s3cr3tword") {
			t.Errorf("err = %v", err)
		}
	})
}

func TestNoFalseAlarm(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		script, probe, nginxConf,
		`TOKEN=$(curl -sX PUT http://169.254.169.254/latest/api/token -H "X-aws-ec2-metadata-token-ttl-seconds: 60")`,
		`curl -H "X-aws-ec2-metadata-token: $TOKEN" http://169.254.169.254/latest/meta-data/instance-id`,
		`password=$(aws secretsmanager get-secret-value --secret-id prod/db --query SecretString --output text)`,
		"PASSWORD=`cat /run/secrets/db`",
		`git clone "https://x:${TOKEN}@git.example.test/x"`,
		`psql "postgres://app:$PGPASSWORD@db/x"`,
		`curl -H "Authorization: Bearer $TOKEN" https://api.example.test`,
		`POSTGRES_PASSWORD_FILE=/run/secrets/pw`,
		`password=/run/secrets/pw`,
		`PASSWORD="$DB_PASSWORD"`,
		`PASSWORD="${DB_PASSWORD:?}"`,
		"-----BEGIN PUBLIC KEY-----",
		"-----BEGIN CERTIFICATE-----",
		"docker run -p 8080:80 registry.example.test:5000/app@sha256:0000",
		"echo mail to someone@example.test about http://host:80/path",
		"export AWS_REGION=us-east-1 AWS_PROFILE=default",
	} {
		if err := CheckCredentials(text); err != nil {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}
