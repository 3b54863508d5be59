package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

// silent shows nothing.
type silent struct{}

func (silent) event(job.Event)   {}
func (silent) state(*client.Job) {}
func (silent) tick()             {}
func (silent) lost(error)        {}
func (silent) back()             {}
func (silent) end(*client.Job)   {}

// A lineSink writes one line a change, and one a minute that says what is
// waited for: what a pipe or a CI log gets.
type lineSink struct {
	w    io.Writer
	term terminal
	now  func() time.Time

	job   *client.Job
	spoke time.Time
	prev  string // the last wait told, which is not told twice
}

func (s *lineSink) print(t time.Time, text string) {
	s.spoke = s.now()
	fmt.Fprintf(s.w, "%s %s\n", t.UTC().Format(time.RFC3339), s.term.text(clean(text)))
}

func (s *lineSink) event(ev job.Event) {
	if text := eventText(ev); ev.Type != "step.waiting" || text != s.prev {
		s.prev = text
		s.print(ev.Time, text)
	}
}

// eventText is an event in one line.
func eventText(ev job.Event) string {
	if ev.Type == "job.failed" {
		if ev.Step == "" {
			return "failed: " + ev.Message
		}
		return "failed at " + ev.Step + ": " + ev.Message
	}
	text := ev.Message
	if kind, ok := strings.CutPrefix(ev.Type, "step."); ok {
		switch {
		case kind == "waiting":
			text = "waiting for " + strings.TrimPrefix(text, "waiting for ")
		case kind == "retrying": // the message says it
		case text == "" || text == kind:
			text = kind
		default:
			text = kind + ": " + text
		}
	}
	if ev.Step == "" {
		return text
	}
	return ev.Step + " " + text
}

func (s *lineSink) state(j *client.Job) { s.job = j }

func (s *lineSink) tick() {
	now := s.now()
	if s.job == nil || now.Sub(s.spoke) < time.Minute {
		return
	}
	s.print(now, fmt.Sprintf("step %s: %s", counts(s.job), s.job.Verdict.Sentence))
}

func (s *lineSink) lost(err error) {
	s.print(s.now(), fmt.Sprintf("the line to the server dropped (%v); reconnecting", err))
}
func (s *lineSink) back() { s.print(s.now(), "the line to the server stands again") }

func (s *lineSink) end(j *client.Job) {
	if j == nil {
		return
	}
	_, word, _ := s.term.badge(j)
	s.print(s.now(), fmt.Sprintf("%s %s: %s", j.Name, word, j.Verdict.Sentence))
}

// A jsonSink writes one event a line, and the job itself as the last.
type jsonSink struct {
	w   io.Writer
	seq int64
}

func (s *jsonSink) write(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		return // events and jobs are plain data; this cannot happen
	}
	fmt.Fprintf(s.w, "%s\n", b)
}

func (s *jsonSink) event(ev job.Event) {
	s.seq = ev.Seq
	s.write(ev)
}
func (s *jsonSink) state(*client.Job) {}
func (s *jsonSink) tick()             {}
func (s *jsonSink) lost(error)        {}
func (s *jsonSink) back()             {}

func (s *jsonSink) end(j *client.Job) {
	if j == nil {
		return
	}
	s.write(map[string]any{"type": "result", "seq": s.seq, "jobId": j.ID, "status": j.Status, "phase": j.Phase, "outputs": j.Outputs, "error": j.Error, "job": j})
}

// A liveSink redraws the step list in place. Steps that are done become fixed
// lines and scroll away; beneath them stand the others, the Now sentence and
// the objects that came last.
type liveSink struct {
	screen screen
	now    func() time.Time
	ctrlC  string // what Ctrl-C does here

	job     *client.Job
	began   time.Time // of the run, as the first step tells
	headed  bool
	run     string // the run that the fixed lines are of
	fixed   int    // steps of it that are fixed lines
	objects []string
	made    int
	away    error
	asOf    time.Time
	frame   int
}

// shownObjects is how many of the newest objects are shown.
const shownObjects = 3

func (s *liveSink) event(ev job.Event) {
	if ev.Type != "object.created" && ev.Type != "object.removed" && ev.Type != "object.lost" {
		return
	}
	sign := map[string]string{"object.created": "+ ", "object.removed": "- ", "object.lost": "! "}[ev.Type]
	s.objects = append(s.objects, sign+ev.Message)
	if len(s.objects) > shownObjects {
		s.objects = s.objects[1:]
	}
	s.made++
}

func (s *liveSink) state(j *client.Job) {
	s.job, s.asOf = j, s.now()
	if key := fmt.Sprintf("%d/%s", j.Run, j.Phase); key != s.run {
		s.run, s.fixed, s.objects, s.made = key, 0, nil, 0
	}
	s.draw()
}

func (s *liveSink) tick() {
	s.frame++
	if s.job != nil {
		s.draw()
	}
}

func (s *liveSink) lost(err error) { s.away = err }
func (s *liveSink) back()          { s.away = nil }

func (s *liveSink) end(j *client.Job) {
	if s.job == nil {
		return
	}
	t := s.screen.term
	if j == nil {
		s.draw()
		s.screen.drawn = nil // what stands there stays
		return
	}
	s.job = j
	var fixed []line
	for i := s.fixed; i < len(j.Steps); i++ {
		fixed = append(fixed, s.step(i, &j.Steps[i]))
	}
	sign, word, p := t.badge(j)
	fixed = append(fixed, line{{p, " " + sign + " " + word}, {plain, "  " + j.Verdict.Sentence}})
	s.screen.draw(append(s.heading(), fixed...), nil)
	s.screen.drawn = nil
}

func (s *liveSink) heading() []line {
	if s.headed {
		return nil
	}
	s.headed = true
	dot := " " + s.screen.term.glyph(glyphDot) + " "
	j := s.job
	return []line{{{bold, j.Name}, {plain, "  " + string(j.ResourceType) + dot + string(j.Provider) + dot + j.Region}, {dim, "  " + j.ID}}}
}

func (s *liveSink) draw() {
	j, t, now := s.job, s.screen.term, s.now()
	fixed := s.heading()
	for s.fixed < len(j.Steps) && j.Steps[s.fixed].Status == job.StepDone {
		fixed = append(fixed, s.step(s.fixed, &j.Steps[s.fixed]))
		s.fixed++
	}
	var lines []line
	for i := s.fixed; i < len(j.Steps); i++ {
		lines = append(lines, s.step(i, &j.Steps[i]))
	}
	lines = append(lines, nil)
	if s.away != nil {
		lines = append(lines, line{{yellow, " Reconnecting, as of " + s.asOf.Format("15:04:05")}, {plain, ": " + s.away.Error()}})
	} else {
		cols, _ := t.size()
		for i, text := range wrap(clean(j.Verdict.Sentence), max(cols-5, 20)) {
			lead := "   "
			if i == 0 {
				lead = " " + pad(t.glyph(glyphNow), 1) + " "
			}
			lines = append(lines, line{{bold, lead}, {plain, text}})
		}
	}
	for _, o := range s.objects {
		lines = append(lines, line{{dim, "   " + o}})
	}
	foot := "   step " + strings.Replace(counts(j), "/", " of ", 1)
	if s.began.IsZero() {
		s.began = began(j, now)
	}
	dot := " " + t.glyph(glyphDot) + " "
	foot += dot + span(now.Sub(s.began).Truncate(time.Second))
	if s.made > 0 {
		foot += dot + plurals(s.made, "object", "objects")
	}
	lines = append(lines, line{{dim, foot + dot + s.ctrlC}})
	s.screen.draw(fixed, lines)
}

// began is when the present run began.
func began(j *client.Job, now time.Time) time.Time {
	at := now
	for _, s := range j.Steps {
		if s.StartedAt != nil && s.StartedAt.Before(at) {
			at = *s.StartedAt
		}
	}
	return at
}

// step is one line of the list.
func (s *liveSink) step(i int, st *client.Step) line {
	t, now := s.screen.term, s.now()
	sign, p := t.glyph(glyphPending), dim
	switch st.Status {
	case job.StepDone:
		sign, p = t.glyph(glyphDone), green
	case job.StepFailed:
		sign, p = t.glyph(glyphFailed), red
	case job.StepRunning, job.StepWaiting:
		sign, p = t.spinner(s.frame), blue
	}
	l := line{{p, " " + sign + " "}, {plain, pad(fmt.Sprintf("%2d %s", i+1, stepTitle(st)), s.titles()+3)}}
	if took := elapsed(st, now); took != "" {
		l = append(l, piece{dim, "  " + pad(took, 11)})
	}
	if st.Attempts > 1 {
		l = append(l, piece{yellow, "  " + plurals(st.Attempts-1, "retry", "retries")})
	}
	if st.Note != "" {
		l = append(l, piece{dim, "  " + st.Note})
	}
	return l
}

// stepTitle is what a step does, in words.
func stepTitle(st *client.Step) string {
	if st.Title == "" || st.Direction == job.Down {
		return title(st.Name, st.Direction)
	}
	return clean(st.Title)
}

// titles is how wide the column of titles is.
func (s *liveSink) titles() int {
	wide := 20
	if s.job != nil {
		for i := range s.job.Steps {
			wide = max(wide, width(stepTitle(&s.job.Steps[i])))
		}
	}
	return min(wide, 40)
}

func elapsed(st *client.Step, now time.Time) string {
	switch {
	case st.StartedAt == nil:
		return ""
	case st.FinishedAt != nil:
		return span(st.FinishedAt.Sub(*st.StartedAt))
	}
	return span(max(now.Sub(*st.StartedAt), 0).Truncate(time.Second))
}
