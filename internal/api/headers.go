package api

import (
	"net/http"
	"strings"
)

// PagesPath is below which the web pages are.
const PagesPath = "/zopday"

// What a browser may do with an answer. The API's are data: nothing of them is to be
// loaded, run or framed. The pages load what lies beside them, and have neither
// scripts nor styles in the markup.
const (
	dataPolicy = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; " +
		"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
	// noFeatures turns off what neither the API nor the pages use.
	noFeatures = "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), midi=(), payment=(), usb=()"
)

// isPage reports whether a path is one of the web pages'.
func isPage(path string) bool { return path == PagesPath || strings.HasPrefix(path, PagesPath+"/") }

// secureHeaders sets what every answer says to browsers. secure: it goes by TLS.
func secureHeaders(h http.Header, path string, secure bool) {
	policy := dataPolicy
	if isPage(path) {
		policy = pagePolicy
	}
	for name, value := range map[string]string{
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cache-Control":                "no-store",
		"Content-Security-Policy":      policy,
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Permissions-Policy":           noFeatures,
	} {
		h.Set(name, value)
	}
	if secure {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}
