package aws

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func metadataText(tokens string, hops int32) string {
	return fmt.Sprintf("tokens %s, hop limit %d", tokens, hops)
}

func diskText(t ec2types.VolumeType, size *int32, encrypted, gone *bool) string {
	text := fmt.Sprintf("%s %d GiB", t, aws.ToInt32(size))
	if aws.ToBool(encrypted) {
		text += ", encrypted"
	}
	if aws.ToBool(gone) {
		text += ", deleted with the VM"
	}
	return text
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// digest tells two user data apart without showing them.
func digest(encoded *string) string {
	raw, err := base64.StdEncoding.DecodeString(aws.ToString(encoded))
	if err != nil {
		raw = []byte(aws.ToString(encoded))
	}
	if len(raw) == 0 {
		return "none"
	}
	sum := sha256.Sum256(raw)
	return "sha256 " + hex.EncodeToString(sum[:6])
}
