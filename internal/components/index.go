package components

import "bytes"

// cutEntry is a repository's index with one chart in it alone. An index lists
// every version of every chart there ever was, and to parse it takes thirty times
// its size in memory. It relies on the layout that Helm writes (a line a key, in
// block style); of another it is nil, as of a chart that is not there, and the
// index has to be parsed whole to know.
func cutEntry(index []byte, name string) []byte {
	const unknown = -1
	within, found := false, false
	depth, start, at := unknown, 0, 0
	for line := range bytes.Lines(index) {
		begin := at
		at += len(line)
		text := bytes.TrimRight(line, " \r\n")
		key := bytes.TrimLeft(text, " ")
		if len(key) == 0 || key[0] == '#' {
			continue
		}
		indent := len(text) - len(key)
		switch {
		case !within:
			within = string(text) == "entries:"
			continue
		case depth == unknown:
			depth = indent
		}
		if indent > depth || indent == depth && key[0] == '-' {
			continue // of the chart above
		}
		if found {
			return entryAlone(index[start:begin])
		}
		if indent < depth || depth == 0 {
			return nil
		}
		if found = isKey(key, name); found {
			start = begin
		}
	}
	if !found {
		return nil
	}
	return entryAlone(index[start:])
}

func entryAlone(lines []byte) []byte { return append([]byte("entries:\n"), lines...) }

// isKey reports whether a line is the key of a mapping that goes on below it,
// quoted or not.
func isKey(line []byte, name string) bool {
	text, colon := bytes.CutSuffix(line, []byte(":"))
	if n := len(text); n > 1 && text[0] == text[n-1] && (text[0] == '"' || text[0] == '\'') {
		text = text[1 : n-1]
	}
	return colon && string(text) == name
}
