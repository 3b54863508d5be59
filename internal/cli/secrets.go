package cli

import (
	"encoding/base64"
	"encoding/hex"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

const secretKeyFlag = "secret-key"

// addSecretKey is the flag that says where the key of a database's secrets is.
func addSecretKey(cmd *cobra.Command, v *string) {
	cmd.Flags().StringVar(v, secretKeyFlag, "", "key `file`, or aws-kms://arn:…, gcp-kms://projects/…, azure-kv://vault/key; ZOPDAY_SECRET_KEY holds a key or such a URI; else a file beside an SQLite file")
}

// checkSecretKey refuses a key where the place of one is wanted: arguments can be
// read by everybody on the machine.
func checkSecretKey(v string) error {
	if v == "" || strings.Contains(v, "://") {
		return nil
	}
	if _, err := os.Stat(v); err == nil {
		return nil
	}
	text := strings.TrimSpace(v)
	_, herr := hex.DecodeString(text)
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := e.DecodeString(text); err == nil && len(b) == 32 || herr == nil && len(text) == 64 {
			return usagef("this looks like a key, and arguments can be read by everybody on this machine: put it into a file (mode 0600) and name that, or into ZOPDAY_SECRET_KEY; and take this one out of use")
		}
	}
	return nil
}
