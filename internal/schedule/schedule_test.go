package schedule

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

func parse(t *testing.T, s job.ScheduleSpec) *Plan {
	t.Helper()
	p, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var office = job.Window{Days: []string{"mon", "tue", "wed", "thu", "fri"}, From: "08:00", To: "20:00"}

func TestWindow(t *testing.T) {
	p := parse(t, job.ScheduleSpec{Window: &office, TimeZone: "Europe/Berlin"})
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC) // a Friday, 13:00 in Berlin
	want := []struct{ at, action string }{
		{"2026-11-27T20:00:00+01:00", "pause"}, {"2026-11-30T08:00:00+01:00", "resume"}, {"2026-11-30T20:00:00+01:00", "pause"}, {"2026-12-01T08:00:00+01:00", "resume"},
	}
	for _, w := range want {
		next, ok := p.Next(at)
		if !ok || next.At.Format(time.RFC3339) != w.at || string(next.Action) != w.action {
			t.Fatalf("after %s: %+v, want %+v", at, next, w)
		}
		at = next.At
	}
	night := parse(t, job.ScheduleSpec{Window: &job.Window{Days: []string{"sat"}, From: "20:00", To: "06:00"}, TimeZone: "UTC"})
	if next, _ := night.Next(time.Date(2026, 11, 28, 21, 0, 0, 0, time.UTC)); next.At.Format(time.RFC3339) != "2026-11-29T06:00:00Z" || next.Action != job.ActionPause {
		t.Errorf("a window over midnight ends at %+v", next)
	}
}

// TestClockChanges: what is due in the hour that is skipped is due at the skip, and
// what is due in the hour that comes twice is due once, the first time.
func TestClockChanges(t *testing.T) {
	p := parse(t, job.ScheduleSpec{PauseCron: "30 2 * * *", ResumeCron: "15 9 * * *", TimeZone: "Europe/Berlin"})
	for name, c := range map[string]struct{ after, want, then string }{
		"skipped":              {"2026-03-28T20:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T07:15:00Z"}, // 02:00 becomes 03:00
		"doubled":              {"2026-10-24T20:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T08:15:00Z"}, // 03:00 becomes 02:00
		"in the second of two": {"2026-10-25T01:10:00Z", "2026-10-25T08:15:00Z", "2026-10-26T01:30:00Z"}, // 02:10 again; 02:30 was
		"an ordinary day":      {"2026-06-01T20:00:00Z", "2026-06-02T00:30:00Z", "2026-06-02T07:15:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := time.Parse(time.RFC3339, c.after)
			if err != nil {
				t.Fatal(err)
			}
			first, _ := p.Next(after)
			if got := first.At.UTC().Format(time.RFC3339); got != c.want {
				t.Errorf("due at %s, want %s", got, c.want)
			}
			second, _ := p.Next(first.At)
			if got := second.At.UTC().Format(time.RFC3339); got != c.then {
				t.Errorf("then at %s, want %s", got, c.then)
			}
		})
	}
	// In other zones: New York skips 02:00 to 03:00, Lord Howe half an hour.
	for _, c := range []struct{ zone, after, want string }{
		{"America/New_York", "2026-03-08T05:00:00Z", "2026-03-08T07:00:00Z"},
		{"America/New_York", "2026-11-01T05:00:00Z", "2026-11-01T07:30:00Z"}, // 02:30 comes once: 01:00 to 02:00 is what comes twice
		{"Australia/Lord_Howe", "2026-10-03T13:00:00Z", "2026-10-03T15:30:00Z"},
	} {
		p := parse(t, job.ScheduleSpec{PauseCron: "30 2 * * *", ResumeCron: "15 9 * * *", TimeZone: c.zone})
		after, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		if next, _ := p.Next(after); next.At.UTC().Format(time.RFC3339) != c.want {
			t.Errorf("%s: due at %s, want %s", c.zone, next.At.UTC().Format(time.RFC3339), c.want)
		}
	}
}

// TestResumeWinsATie: where pause and resume fall on the same instant, the pool runs.
func TestResumeWinsATie(t *testing.T) {
	for name, c := range map[string]struct {
		spec      job.ScheduleSpec
		now, want string
	}{
		// 02:00 is skipped, and due when the clocks show 03:00 instead.
		"the clocks skip the pause": {job.ScheduleSpec{Window: &job.Window{Days: days, From: "03:00", To: "02:00"}, TimeZone: "Europe/Berlin"}, "2027-03-27T12:00:00Z", "2027-03-28T01:00:00Z"},
		"the first is a Monday":     {job.ScheduleSpec{PauseCron: "0 8 1 * *", ResumeCron: "0 8 * * 1", TimeZone: "UTC"}, "2027-01-30T00:00:00Z", "2027-02-01T08:00:00Z"},
	} {
		p := parse(t, c.spec)
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		first, _ := p.Next(now)
		if got := first.At.UTC().Format(time.RFC3339); got != c.want || first.Action != job.ActionResume {
			t.Errorf("%s: %s at %s, want resume at %s", name, first.Action, got, c.want)
		}
		if then, _ := p.Next(first.At); !then.At.After(first.At) {
			t.Errorf("%s: then %s at the same instant", name, then.Action)
		}
		if last, missed := p.Latest(first, first.At.Add(time.Minute)); last != first || missed != 0 {
			t.Errorf("%s: the latest is %+v, %d missed", name, last, missed)
		}
	}
}

// TestEveryDayOnce: over two years of changing clocks, a daily line comes due once
// each day of the calendar, and never goes back.
func TestEveryDayOnce(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC", "America/Sao_Paulo"} {
		for _, at := range []string{"0 0", "30 1", "30 2", "0 3", "59 23"} {
			p := parse(t, job.ScheduleSpec{PauseCron: at + " * * *", ResumeCron: "0 12 31 12 *", TimeZone: zone})
			last := time.Date(2025, 12, 31, 12, 0, 0, 0, p.zone)
			seen := map[string]bool{}
			for len(seen) < 730 {
				next, ok := p.next(p.pause, job.ActionPause, last)
				if !ok || !next.At.After(last) || next.At.Sub(last) > 27*time.Hour {
					t.Fatalf("%s %s: %s after %s", zone, at, next.At, last)
				}
				day := next.At.In(p.zone).Format(time.DateOnly)
				if seen[day] {
					t.Fatalf("%s %s: twice on %s", zone, at, day)
				}
				seen[day], last = true, next.At
			}
		}
	}
}

// TestLatest: of what came due while nobody looked, the latest alone counts.
func TestLatest(t *testing.T) {
	p := parse(t, job.ScheduleSpec{Window: &office, TimeZone: "UTC"})
	due, _ := p.Next(time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)) // Monday 08:00
	latest, missed := p.Latest(due, time.Date(2026, 11, 25, 13, 0, 0, 0, time.UTC))
	if latest.At.Format(time.RFC3339) != "2026-11-25T08:00:00Z" || latest.Action != job.ActionResume || missed != 4 {
		t.Errorf("%+v, %d missed", latest, missed)
	}
	if latest, missed = p.Latest(due, due.At); latest != due || missed != 0 {
		t.Errorf("%+v, %d missed", latest, missed)
	}
	often := parse(t, job.ScheduleSpec{PauseCron: "* * * * *", ResumeCron: "30 * * * *", TimeZone: "UTC"})
	due, _ = often.Next(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	now := time.Date(2026, 11, 25, 13, 0, 30, 0, time.UTC)
	if latest, _ = often.Latest(due, now); now.Sub(latest.At) > time.Minute {
		t.Errorf("after years, the latest is %s", latest.At)
	}
}

func TestHoursOff(t *testing.T) {
	for name, c := range map[string]struct {
		spec job.ScheduleSpec
		want float64
	}{
		"weekdays, twelve hours": {job.ScheduleSpec{Window: &office, TimeZone: "Europe/Berlin"}, 108},
		"the same by lines":      {job.ScheduleSpec{PauseCron: "0 20 * * 1-5", ResumeCron: "0 8 * * 1-5", TimeZone: "UTC"}, 108},
		"nights":                 {job.ScheduleSpec{PauseCron: "0 22 * * *", ResumeCron: "0 6 * * *", TimeZone: "UTC"}, 56},
		"over midnight":          {job.ScheduleSpec{Window: &job.Window{Days: []string{"sun", "sat"}, From: "20:00", To: "06:00"}, TimeZone: "UTC"}, 148},
		"to midnight":            {job.ScheduleSpec{Window: &job.Window{Days: []string{"mon"}, From: "12:00", To: "24:00"}, TimeZone: "UTC"}, 156},
	} {
		got, ok := parse(t, c.spec).HoursOff()
		if !ok || math.Abs(got-c.want) > 0.01 {
			t.Errorf("%s: %g hours off, want %g", name, got, c.want)
		}
	}
	if _, ok := parse(t, job.ScheduleSpec{PauseCron: "0 20 * * *", TimeZone: "UTC"}).HoursOff(); ok {
		t.Error("a schedule that never resumes has hours off")
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spec  job.ScheduleSpec
		field string
	}{
		"no zone":          {job.ScheduleSpec{Window: &office}, "timeZone"},
		"no such zone":     {job.ScheduleSpec{Window: &office, TimeZone: "Mars/Olympus"}, "timeZone"},
		"a path":           {job.ScheduleSpec{Window: &office, TimeZone: "../../etc/passwd"}, "timeZone"},
		"local":            {job.ScheduleSpec{Window: &office, TimeZone: "Local"}, "timeZone"},
		"nothing":          {job.ScheduleSpec{TimeZone: "UTC"}, "window"},
		"both":             {job.ScheduleSpec{Window: &office, PauseCron: "0 1 * * *", TimeZone: "UTC"}, "window"},
		"a zone in a line": {job.ScheduleSpec{PauseCron: "TZ=UTC 0 1 * * *", TimeZone: "UTC"}, "pauseCron"},
		"every":            {job.ScheduleSpec{PauseCron: "@every 1h", TimeZone: "UTC"}, "pauseCron"},
		"six fields":       {job.ScheduleSpec{PauseCron: "0 0 1 * * *", TimeZone: "UTC"}, "pauseCron"},
		"never":            {job.ScheduleSpec{PauseCron: "0 0 31 2 *", TimeZone: "UTC"}, "pauseCron"},
		"the same":         {job.ScheduleSpec{PauseCron: "0 1 * * *", ResumeCron: "0 1 * * *", TimeZone: "UTC"}, "pauseCron"},
		"a day":            {job.ScheduleSpec{Window: &job.Window{Days: []string{"someday"}, From: "08:00", To: "20:00"}, TimeZone: "UTC"}, "window.days"},
		"an hour":          {job.ScheduleSpec{Window: &job.Window{Days: []string{"mon"}, From: "8", To: "24:30"}, TimeZone: "UTC"}, "window.from"},
		"always":           {job.ScheduleSpec{Window: &job.Window{Days: days, From: "00:00", To: "24:00"}, TimeZone: "UTC"}, "window.to"},
	} {
		_, err := Parse(c.spec)
		var bad *job.Invalid
		if !errors.As(err, &bad) || bad.Fields[0].Field != c.field || bad.Fields[0].Fix == "" {
			t.Errorf("%s: %v, want a fault of %s", name, err, c.field)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0 20 * * 1-5", "0 8 * * 1-5", "Europe/Berlin")
	f.Add("*/7 * * * *", "", "Australia/Lord_Howe")
	f.Fuzz(func(t *testing.T, pause, resume, zone string) {
		p, err := Parse(job.ScheduleSpec{PauseCron: pause, ResumeCron: resume, TimeZone: zone})
		if err != nil {
			return
		}
		if strings.ContainsAny(pause+resume, "=@") {
			t.Fatalf("%q %q was taken", pause, resume)
		}
		now := time.Date(2026, 3, 29, 0, 59, 0, 0, time.UTC)
		for range 5 {
			next, ok := p.Next(now)
			if !ok {
				return
			}
			if !next.At.After(now) {
				t.Fatalf("%q %q %q: %s is not after %s", pause, resume, zone, next.At, now)
			}
			now = next.At
		}
	})
}
