package components

import "slices"

// An edit is a line that is kept (' '), taken away ('-') or put in ('+'); a and b
// are how many lines of each text come before it.
type edit struct {
	kind rune
	text string
	a, b int
}

// mostEdits bounds the search for the shortest script: past it the rest is taken
// for replaced as a whole. It costs the square of this in memory.
const mostEdits = 1500

// edits is the shortest script that makes b out of a (E. W. Myers, "An O(ND)
// Difference Algorithm and Its Variations", 1986).
func edits(a, b []string) []edit {
	pre := 0
	for pre < len(a) && pre < len(b) && a[pre] == b[pre] {
		pre++
	}
	post := 0
	for post < len(a)-pre && post < len(b)-pre && a[len(a)-1-post] == b[len(b)-1-post] {
		post++
	}
	var out []edit
	add := func(kind rune, text string) {
		e := edit{kind: kind, text: text}
		if n := len(out); n > 0 {
			e.a, e.b = out[n-1].a, out[n-1].b
			if out[n-1].kind != '+' {
				e.a++
			}
			if out[n-1].kind != '-' {
				e.b++
			}
		}
		out = append(out, e)
	}
	for _, s := range a[:pre] {
		add(' ', s)
	}
	for _, op := range middle(a[pre:len(a)-post], b[pre:len(b)-post]) {
		add(op.kind, op.text)
	}
	for _, s := range a[len(a)-post:] {
		add(' ', s)
	}
	return out
}

func middle(a, b []string) []edit {
	trace, found := search(a, b)
	if !found {
		return replaced(a, b)
	}
	var back []edit
	x, y := len(a), len(b)
	for d, v := range slices.Backward(trace) {
		off := d + 1
		k := x - y
		var pk int
		if k == -d || k != d && v[off+k-1] < v[off+k+1] {
			pk = k + 1
		} else {
			pk = k - 1
		}
		px := v[off+pk]
		py := px - pk
		if d == 0 {
			px, py = 0, 0
		}
		for x > px && y > py {
			x, y = x-1, y-1
			back = append(back, edit{kind: ' ', text: a[x]})
		}
		switch {
		case d == 0:
		case x == px:
			y--
			back = append(back, edit{kind: '+', text: b[y]})
		default:
			x--
			back = append(back, edit{kind: '-', text: a[x]})
		}
	}
	slices.Reverse(back)
	return back
}

// search finds how far each diagonal reaches with each number of edits; trace[d]
// is what was known before the d-th.
func search(a, b []string) (trace [][]int, found bool) {
	n, m := len(a), len(b)
	v := map[int]int{1: 0}
	for d := 0; d <= min(n+m, mostEdits); d++ {
		row := make([]int, 2*d+3)
		for k := -d - 1; k <= d+1; k++ {
			row[d+1+k] = v[k]
		}
		trace = append(trace, row)
		for k := -d; k <= d; k += 2 {
			var x int
			if k == -d || k != d && v[k-1] < v[k+1] {
				x = v[k+1]
			} else {
				x = v[k-1] + 1
			}
			y := x - k
			for x < n && y < m && a[x] == b[y] {
				x, y = x+1, y+1
			}
			v[k] = x
			if x >= n && y >= m {
				return trace, true
			}
		}
	}
	return nil, false
}

func replaced(a, b []string) []edit {
	var out []edit
	for _, s := range a {
		out = append(out, edit{kind: '-', text: s})
	}
	for _, s := range b {
		out = append(out, edit{kind: '+', text: s})
	}
	return out
}
