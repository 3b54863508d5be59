package aws

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/zopday/provisioner/internal/bootstrap"
)

// userData looks for credentials in what every VM begins with: whoever may describe
// the template can read it. The report names the kind and the line, not the value.
func (c *controls) userData(encoded *string) {
	text, err := userDataText(aws.ToString(encoded))
	if err != nil {
		c.r.Note("the template's user data was not looked through for credentials: %v", err)
		return
	}
	seen := "none"
	var found *bootstrap.CredentialError
	if errors.As(bootstrap.CheckCredentials(text), &found) {
		seen = fmt.Sprintf("line %d looks like %s", found.Line, found.Pattern)
	}
	c.same("VMA-08", "credentials in the template's user data", "none", seen, "AWS-0129, ec2_launch_template_no_secrets")
}

// encodedFile is a file in a cloud-config document that is not written as it is.
var encodedFile = regexp.MustCompile(`(encoding: b64\n\s*content: )([A-Za-z0-9+/=]+)`)

// userDataText is user data as a VM reads it: unpacked, with the files in it.
func userDataText(encoded string) (string, error) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("it is not base64: %w", err)
	}
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		zip, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return "", fmt.Errorf("it cannot be unpacked: %w", err)
		}
		if data, err = io.ReadAll(io.LimitReader(zip, 16<<20)); err != nil {
			return "", fmt.Errorf("it cannot be unpacked: %w", err)
		}
	}
	return string(encodedFile.ReplaceAllFunc(data, func(found []byte) []byte {
		part := encodedFile.FindSubmatch(found)
		file, err := base64.StdEncoding.DecodeString(string(part[2]))
		if err != nil {
			return found
		}
		return append(part[1], file...)
	})), nil
}
