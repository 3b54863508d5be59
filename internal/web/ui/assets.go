package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
)

//go:embed assets
var files embed.FS

// An asset is a file that pages load: under a name with its hash, so that browsers
// keep it for a year, and compressed once.
type asset struct {
	name, kind  string
	body, small []byte // small is gzip
}

var kinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// assets are all that pages load, by the name with the hash; hashed gives that name.
var assets, hashed = load()

func load() (byName map[string]asset, hashed map[string]string) {
	byName, hashed = map[string]asset{}, map[string]string{}
	all, err := fs.Glob(files, "assets/*.*")
	if err != nil {
		panic(err) // a pattern that is right
	}
	for _, file := range all {
		kind, ok := kinds[path.Ext(file)]
		if !ok {
			continue
		}
		body, err := files.ReadFile(file)
		if err != nil {
			panic(err) // it is embedded
		}
		var small bytes.Buffer
		z, _ := gzip.NewWriterLevel(&small, gzip.BestCompression) // the level is right
		_, err = z.Write(body)
		if err == nil {
			err = z.Close()
		}
		if err != nil {
			panic(err) // memory does not fail
		}
		sum := sha256.Sum256(body)
		base := path.Base(file)
		ext := path.Ext(base)
		name := fmt.Sprintf("%s.%x%s", strings.TrimSuffix(base, ext), sum[:6], ext)
		byName[name] = asset{name, kind, body, small.Bytes()}
		hashed[base] = name
	}
	return byName, hashed
}

// AssetPath is where a page finds an asset, such as "app.css".
func AssetPath(name string) string {
	h, ok := hashed[name]
	if !ok {
		panic("no asset " + name)
	}
	return Root + "/assets/" + h
}

// Integrity is an asset's hash, as script and link elements name it.
func Integrity(name string) string {
	sum := sha256.Sum256(assets[hashed[name]].body)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets[path.Base(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	body := a.body
	if accepts(r, "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = a.small
	}
	_, _ = w.Write(body) // the caller has gone: nobody is left to tell
}

// accepts reports whether a browser takes an encoding.
func accepts(r *http.Request, encoding string) bool {
	return slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(e string) bool {
		name, q, _ := strings.Cut(strings.TrimSpace(e), ";")
		return name == encoding && strings.ReplaceAll(q, " ", "") != "q=0"
	})
}
