package cli

import (
	"fmt"
	"io"
	"strings"
)

// A piece is a part of a line in one colour.
type piece struct {
	paint paint
	text  string
}

type line []piece

func (l line) width() int {
	n := 0
	for _, p := range l {
		n += width(p.text)
	}
	return n
}

// render cuts a line to the columns there are and colours it.
func (l line) render(t terminal, cols int) string {
	var b strings.Builder
	room := cols
	for i, p := range l {
		text := t.text(clean(p.text))
		last := i == len(l)-1
		if w := width(text); w > room || (w == room && !last && l[i+1:].width() > 0) {
			b.WriteString(t.paint(p.paint, t.cut(text+" ", room)))
			break
		}
		b.WriteString(t.paint(p.paint, text))
		room -= width(text)
	}
	return b.String()
}

// A screen redraws a few lines in place, at the end of what the terminal
// shows. It never uses the alternate screen, so what was seen stays in the
// scroll-back.
type screen struct {
	w     io.Writer
	term  terminal
	drawn []int // widths of the lines that stand there now
	last  string
}

// draw puts the lines there, in place of the ones before. fixed lines come
// above them and stay.
func (s *screen) draw(fixed, lines []line) {
	cols, rows := s.term.size()
	// One column is left free: a full line makes some terminals wrap.
	cols = max(cols-1, 10)
	if most := max(rows-2, 3); len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	var body strings.Builder
	widths := make([]int, 0, len(lines))
	for _, l := range lines {
		text := l.render(s.term, cols)
		widths = append(widths, min(l.width(), cols))
		body.WriteString(text + "\x1b[K\n")
	}
	if len(fixed) == 0 && body.String() == s.last && len(widths) == len(s.drawn) {
		return
	}
	s.last = body.String()
	var b strings.Builder
	b.WriteString(s.home(cols + 1))
	for _, l := range fixed {
		b.WriteString(l.render(s.term, cols) + "\x1b[K\n")
	}
	b.WriteString(body.String())
	b.WriteString("\x1b[J")
	s.drawn = widths
	fmt.Fprint(s.w, b.String())
}

// home moves the cursor to where the drawn lines begin. A terminal that was
// made narrower has broken them into more rows than were written.
func (s *screen) home(cols int) string {
	rows := 0
	for _, w := range s.drawn {
		rows += max(1, (w+cols-1)/cols)
	}
	if rows == 0 {
		return "\r"
	}
	return fmt.Sprintf("\r\x1b[%dA", rows)
}
