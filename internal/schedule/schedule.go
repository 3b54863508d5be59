// Package schedule says when a pool is paused and resumed: cron lines and windows
// of the week in a time zone, over the days on which its clocks change. It is pure:
// it knows no database and no clock.
//
// Times are times of the wall: what is due at 02:30 is due at 02:30 of the zone's
// clocks. On the day on which they skip 02:30, it is due at the moment of the skip;
// on the day on which they show 02:30 twice, the first time. So nothing is left
// out and nothing happens twice.
package schedule

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a server may stand on a machine without one

	"github.com/robfig/cron/v3"

	"github.com/zopday/provisioner/internal/job"
)

// HoursAWeek is how many hours a week has.
const HoursAWeek = 168

// A Plan is a schedule that was understood.
type Plan struct {
	pause, resume cron.Schedule // nil: never
	zone          *time.Location
}

// A Transition is one due time.
type Transition struct {
	At     time.Time
	Action job.RemediationAction
}

// fields are the five of a cron line. Descriptors and zones of its own are not
// taken: a schedule has one zone, and @every knows no wall clock.
var fields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

var clockRE = regexp.MustCompile(`^([01][0-9]|2[0-4]):([0-5][0-9])$`)

// Parse reads when a pool is paused and resumed. Everything that is wrong is an
// *job.Invalid.
func Parse(s job.ScheduleSpec) (*Plan, error) {
	var bad []job.FieldError
	add := func(field, message, fix string) {
		bad = append(bad, job.FieldError{Field: field, Message: message, Fix: fix})
	}
	p := &Plan{}
	var err error
	switch {
	case s.TimeZone == "":
		add("timeZone", "is missing", "name one, such as Europe/Berlin, or UTC")
	case strings.EqualFold(s.TimeZone, "local"):
		add("timeZone", "is that of whichever machine runs the server", "name one, such as Europe/Berlin, or UTC")
	default:
		if p.zone, err = time.LoadLocation(s.TimeZone); err != nil {
			add("timeZone", fmt.Sprintf("%.60q is not a time zone that is known", s.TimeZone), "use an IANA name, such as Europe/Berlin, or UTC")
		}
	}
	pause, resume := s.PauseCron, s.ResumeCron
	switch {
	case s.Window != nil && (pause != "" || resume != ""):
		add("window", "comes with a cron line", "give either the window or the cron lines")
	case s.Window == nil && pause == "" && resume == "":
		add("window", "is missing, and so are the cron lines", `give {"days":["mon",…],"from":"08:00","to":"20:00"}, or pauseCron and resumeCron`)
	case s.Window != nil:
		var wrong []job.FieldError
		pause, resume, wrong = windowCrons(*s.Window)
		bad = append(bad, wrong...)
	}
	for _, c := range []struct {
		field, line string
		into        *cron.Schedule
	}{{"pauseCron", pause, &p.pause}, {"resumeCron", resume, &p.resume}} {
		if c.line == "" {
			continue
		}
		if *c.into, err = line(c.line); err != nil {
			add(c.field, err.Error(), "use minute, hour, day of month, month, day of week, such as 0 20 * * 1-5")
		}
	}
	if len(bad) == 0 && pause == resume {
		add("pauseCron", "is the same as resumeCron", "pause and resume at different times")
	}
	if len(bad) > 0 {
		return nil, &job.Invalid{Fields: bad}
	}
	return p, nil
}

// line reads one cron line, which has to come due at all.
func line(text string) (cron.Schedule, error) {
	if len(text) > 200 || strings.ContainsAny(text, "=@") {
		return nil, fmt.Errorf("%.60q is not a cron line of five fields", text)
	}
	s, err := fields.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%.60q is not a cron line: %.120s", text, err.Error())
	}
	if s.Next(monday).IsZero() {
		return nil, fmt.Errorf("%.60q never comes due", text)
	}
	return s, nil
}

// monday is where a week of no particular year begins.
var monday = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// windowCrons is a window as two cron lines.
func windowCrons(w job.Window) (pause, resume string, bad []job.FieldError) {
	add := func(field, message, fix string) {
		bad = append(bad, job.FieldError{Field: "window." + field, Message: message, Fix: fix})
	}
	var on []int
	for _, d := range w.Days {
		n := slices.Index(days, strings.ToLower(strings.TrimSpace(d)))
		switch {
		case n < 0:
			add("days", fmt.Sprintf("%.20q is not a day", d), "use "+strings.Join(days, ", "))
		case !slices.Contains(on, n):
			on = append(on, n)
		}
	}
	if len(w.Days) == 0 {
		add("days", "is missing", "name the days on which the pool runs, such as mon")
	}
	from, ok := clock(w.From)
	if !ok || from == 24*60 {
		add("from", fmt.Sprintf("%.20q is not a time of day", w.From), "use hours and minutes, such as 08:00")
	}
	to, ok := clock(w.To)
	if !ok {
		add("to", fmt.Sprintf("%.20q is not a time of day", w.To), "use hours and minutes, such as 20:00")
	}
	if len(bad) > 0 {
		return "", "", bad
	}
	if from == to || from == 0 && to == 24*60 && len(on) == 7 {
		add("to", "leaves no time at which the pool is paused, or none at which it runs", "use another time than from")
		return "", "", bad
	}
	later := 0
	if to <= from || to == 24*60 {
		later = 1
	}
	return cronOn(to%(24*60), on, later), cronOn(from, on, 0), nil
}

// clock is a time of day in minutes.
func clock(text string) (minutes int, ok bool) {
	m := clockRE.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	h, _ := strconv.Atoi(m[1]) // digits, by the expression
	n, _ := strconv.Atoi(m[2])
	return h*60 + n, h < 24 || n == 0
}

func cronOn(minutes int, on []int, later int) string {
	var list []string
	for _, d := range on {
		list = append(list, strconv.Itoa((d+later)%7))
	}
	slices.Sort(list)
	return fmt.Sprintf("%d %d * * %s", minutes%60, minutes/60, strings.Join(list, ","))
}

// Next is the first due time after a moment. Where both lines fall on one instant,
// as they may where the clocks skip an hour, only the resume counts: a pool that is
// not resumed is missed, one that is not paused only costs.
func (p *Plan) Next(after time.Time) (Transition, bool) {
	a, aok := p.next(p.pause, job.ActionPause, after)
	b, bok := p.next(p.resume, job.ActionResume, after)
	switch {
	case !aok:
		return b, bok
	case bok && !b.At.After(a.At):
		return b, true
	}
	return a, true
}

// next walks the wall clock, which never skips and never repeats, and turns what it
// shows into a moment.
func (p *Plan) next(s cron.Schedule, action job.RemediationAction, after time.Time) (Transition, bool) {
	if s == nil {
		return Transition{}, false
	}
	local := after.In(p.zone)
	// Clocks that are set back show the same times again: those may be due yet.
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC).Add(-time.Second)
	for {
		if wall = s.Next(wall); wall.IsZero() {
			return Transition{}, false
		}
		if at := moment(wall, p.zone); at.After(after) {
			return Transition{At: at, Action: action}, true
		}
	}
}

// moment is when the zone's clocks first show a time; if they skip it, when they
// skip it.
func moment(wall time.Time, zone *time.Location) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	shows := func(t time.Time) bool {
		return t.Hour() == wall.Hour() && t.Minute() == wall.Minute() && t.Day() == wall.Day()
	}
	start, end := t.ZoneBounds()
	if !shows(t) {
		// Date has taken the offset of one side of the skip: the skip is the bound
		// of its zone that lies nearest.
		if !start.IsZero() && (end.IsZero() || t.Sub(start) < end.Sub(t)) {
			return start
		}
		return end
	}
	if start.IsZero() {
		return t
	}
	_, offset := t.Zone()
	_, before := start.Add(-time.Second).Zone()
	if earlier := t.Add(-time.Duration(before-offset) * time.Second); before > offset && shows(earlier) && earlier.Before(start) {
		return earlier
	}
	return t
}

// most bounds how many due times are walked through at once.
const most = 5000

// Latest is the last due time from one on, up to now, and how many came before it
// and are passed over: after a time in which nobody looked, only the latest counts.
func (p *Plan) Latest(due Transition, now time.Time) (latest Transition, missed int) {
	latest = due
	for range most {
		next, ok := p.Next(latest.At)
		if !ok || next.At.After(now) {
			return latest, missed
		}
		latest, missed = next, missed+1
	}
	// So many that counting them is of no use: the last day is looked at.
	if from := now.Add(-24 * time.Hour); latest.At.Before(from) {
		if next, ok := p.Next(from); ok && !next.At.After(now) {
			late, more := p.Latest(next, now)
			return late, missed + more + 1
		}
	}
	return latest, missed
}

// weeks is over how many weeks the hours are counted: a year, so that lines by day
// of month come out even.
const weeks = 52

// HoursOff is for how many hours of a week the pool is paused, on average; false if
// it is never resumed, or never paused, by this schedule.
func (p *Plan) HoursOff() (float64, bool) {
	if p.pause == nil || p.resume == nil {
		return 0, false
	}
	type change struct {
		at  time.Time
		off bool
	}
	end := monday.AddDate(0, 0, 7*weeks)
	var all []change
	for _, s := range []struct {
		cron.Schedule
		off bool
	}{{p.pause, true}, {p.resume, false}} {
		for t := s.Next(monday.Add(-time.Second)); !t.IsZero() && t.Before(end) && len(all) < 200_000; t = s.Next(t) {
			all = append(all, change{t, s.off})
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(a.at.Unix(), b.at.Unix()) })
	var off time.Duration
	was, since := all[len(all)-1].off, monday // a year like the one before
	for _, c := range all {
		if was {
			off += c.at.Sub(since)
		}
		was, since = c.off, c.at
	}
	if was {
		off += end.Sub(since)
	}
	return off.Hours() / weeks, true
}
