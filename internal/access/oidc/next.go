package oidc

import (
	"net/url"
	"path"
	"strings"
)

// start is where people go on to who asked for no other page.
const start = "/"

const maxNext = 2000

// LocalPath is a page of this server to go on to after a sign-in, or the start page
// for anything that a browser might take to be elsewhere: another host, another
// scheme, a path with a backslash or with two slashes in a row, however encoded.
func LocalPath(next string) string {
	if len(next) > maxNext || !strings.HasPrefix(next, "/") || strings.ContainsFunc(next, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) {
		return start
	}
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" {
		return start
	}
	// What a proxy in front might decode is looked at decoded, twice.
	at := u.EscapedPath()
	for range 3 {
		if strings.Contains(at, "//") || strings.ContainsAny(at, "\\\r\n\t\x00") || !strings.HasPrefix(at, "/") {
			return start
		}
		if at, err = url.PathUnescape(at); err != nil {
			return start
		}
	}
	// Nor back into the sign-in itself.
	if at = path.Clean(at); at == "/auth" || strings.HasPrefix(at, "/auth/") {
		return start
	}
	return u.RequestURI()
}
