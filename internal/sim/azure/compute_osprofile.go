package azure

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// maxCustomData is the longest custom data, in characters of Base64: 64 KiB of binary ("OSProfile", Virtual Machines REST
// API: "the maximum length of the binary array is 65535 bytes").
const maxCustomData = 87380

// reservedAdmins are the names that no administrator may have ("OSProfile", Virtual Machines REST API).
var reservedAdmins = []string{"administrator", "admin", "user", "user1", "test", "user2", "test1", "user3", "admin1", "1", "123", "a",
	"actuser", "adm", "admin2", "aspnet", "backup", "console", "david", "guest", "john", "owner", "root", "server", "sql", "support",
	"support_388945a0", "sys", "test2", "test3", "user4", "user5"}

var badHostName = regexp.MustCompile("[`~!@#$%^&*()=+_\\[\\]{}\\\\|;:'\",<>/?\\s]")

func invalidParameter(target, format string, args ...any) *Error {
	e := refuse(400, "InvalidParameter", format, args...)
	e.Target = target
	return e
}

func missingParameter(name string) *Error {
	return invalidParameter(name, "Required parameter '%s' is missing (null).", name)
}

// checkOSProfile judges an osProfile of a Linux machine. nameField is computerName, or computerNamePrefix in a scale set.
func checkOSProfile(os doc, nameField string) *Error {
	if os == nil {
		return missingParameter("osProfile")
	}
	host := os.str(nameField)
	longest := 64
	if nameField == "computerNamePrefix" {
		longest = 58 // six characters of the instance follow
	}
	if host == "" {
		return missingParameter(nameField)
	}
	if len(host) > longest || badHostName.MatchString(host) {
		return invalidParameter(nameField, "Linux host name cannot exceed %d characters in length or contain the following characters: ` ~ ! @ # $ %% ^ & * ( ) = + _ [ ] { } \\ | ; : ' \" , < > / ?.", longest)
	}
	admin := os.str("adminUsername")
	switch {
	case admin == "":
		return missingParameter("adminUsername")
	case slices.Contains(reservedAdmins, strings.ToLower(admin)):
		return invalidParameter("adminUsername", "The Admin Username specified is not allowed.")
	case len(admin) > 64 || strings.ContainsAny(admin, `\/"[]:|<>+=;,?*@& `) || strings.HasSuffix(admin, "."):
		return invalidParameter("adminUsername", "Linux admin user name cannot be more than 64 characters long, start with '-' or contain the characters \\ / \" [ ] : | < > + = ; , ? * @ & or spaces.")
	}
	if e := checkCredentials(os, admin); e != nil {
		return e
	}
	return checkCustomData(os.str("customData"))
}

// checkCredentials: an administrator needs a key or a password.
func checkCredentials(os doc, admin string) *Error {
	keys := os.docs("linuxConfiguration.ssh.publicKeys")
	password := os.str("adminPassword")
	if os.flag("linuxConfiguration.disablePasswordAuthentication") {
		if len(keys) == 0 {
			return invalidParameter("linuxConfiguration", "Authentication using either SSH or by user name and password must be enabled in Linux profile.")
		}
	} else if password == "" {
		return missingParameter("adminPassword")
	}
	if password != "" && !strongPassword(password) {
		return invalidParameter("adminPassword", "The supplied password must be between 6-72 characters long and must satisfy at least 3 of password complexity requirements from the following:\r\n1) Contains an uppercase character\r\n2) Contains a lowercase character\r\n3) Contains a numeric digit\r\n4) Contains a special character\r\n5) Control characters are not allowed")
	}
	for _, k := range keys {
		want := "/home/" + admin + "/.ssh/authorized_keys"
		if p := k.str("path"); p != want {
			return invalidParameter("linuxConfiguration.ssh.publicKeys.path", "Destination path for SSH public keys is currently limited to its default value %s due to a known issue in Linux provisioning agent.", want)
		}
		if !goodPublicKey(k.str("keyData")) {
			return invalidParameter("linuxConfiguration.ssh.publicKeys.keyData", "The value of parameter linuxConfiguration.ssh.publicKeys.keyData is invalid.")
		}
	}
	return nil
}

func strongPassword(p string) bool {
	if len(p) < 6 || len(p) > 72 || strings.ContainsFunc(p, unicode.IsControl) {
		return false
	}
	kinds := 0
	for _, is := range []func(rune) bool{unicode.IsUpper, unicode.IsLower, unicode.IsDigit,
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }} {
		if strings.ContainsFunc(p, is) {
			kinds++
		}
	}
	return kinds >= 3
}

// goodPublicKey accepts keys in the form of OpenSSH: RSA of 2048 bits and more, and Ed25519 ("Create and manage SSH keys for
// authentication to a Linux VM in Azure").
func goodPublicKey(text string) bool {
	f := strings.Fields(text)
	if len(f) < 2 {
		return false
	}
	raw, err := base64.StdEncoding.DecodeString(f[1])
	if err != nil {
		return false
	}
	name, rest, ok := sshField(raw)
	if !ok || string(name) != f[0] {
		return false
	}
	switch f[0] {
	case "ssh-ed25519":
		point, _, ok := sshField(rest)
		return ok && len(point) == 32
	case "ssh-rsa":
		_, rest, ok = sshField(rest)
		if !ok {
			return false
		}
		modulus, _, ok := sshField(rest)
		return ok && len(modulus) >= 256
	}
	return false
}

// sshField cuts one length-prefixed field off a key (RFC 4251, section 5).
func sshField(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint32(b))
	if n < 0 || n > len(b)-4 {
		return nil, nil, false
	}
	return b[4 : 4+n], b[4+n:], true
}

func checkCustomData(data string) *Error {
	if data == "" {
		return nil
	}
	if _, err := base64.StdEncoding.DecodeString(data); err != nil || len(data) > maxCustomData {
		return invalidParameter("customData", "Custom data in OSProfile must be in Base64 encoding and with a maximum length of %d characters.", maxCustomData)
	}
	return nil
}

// fillOSProfile adds what the service shows though nobody said it. Scale sets show no patch settings.
func fillOSProfile(os doc, patches bool) {
	linux := os.sub("linuxConfiguration")
	if linux == nil {
		linux = doc{}
		os["linuxConfiguration"] = map[string]any(linux)
	}
	linux.def("disablePasswordAuthentication", false)
	linux.def("provisionVMAgent", true)
	if patches {
		linux.def("patchSettings", map[string]any{"patchMode": "ImageDefault"})
	}
	os.def("secrets", []any{})
	os.def("allowExtensionOperations", linux.flag("provisionVMAgent"))
	os.def("requireGuestProvisionSignal", true)
}

// secretsOf takes what the service never shows again out of an osProfile: the password, and the custom data, which it
// answers.
func secretsOf(os doc) (customData string) {
	customData = os.str("customData")
	delete(os, "customData")
	delete(os, "adminPassword")
	return customData
}

// instanceHost is the host name of the n-th instance of a scale set: the prefix and six digits in base 36.
func instanceHost(prefix string, n int) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	text := ""
	for ; n > 0 || text == ""; n /= 36 {
		text = string(digits[n%36]) + text
	}
	return prefix + fmt.Sprintf("%0*s", 6, text)
}
