package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/zopday/provisioner/internal/job"
)

// A Schedule pauses and resumes the pools of one job at set times.
type Schedule struct {
	job.Schedule
	Estimate Estimate          `json:"estimate"`
	Runs     []job.ScheduleRun `json:"runs"`
}

// An Estimate is what a schedule saves.
type Estimate struct {
	HoursOffPerWeek *float64 `json:"hoursOffPerWeek,omitempty"`
	SavedPercent    *float64 `json:"savedPercent,omitempty"`
	Machines        int      `json:"machines"`
	Arithmetic      string   `json:"arithmetic"`
	SavedPerMonth   *float64 `json:"savedPerMonth,omitempty"`
	Currency        string   `json:"currency,omitempty"`
	Price           string   `json:"price"`
	Note            string   `json:"note"`
}

// ListSchedules reads one page of schedules; the cursor of the next is "" at the end.
func (c *Client) ListSchedules(ctx context.Context, query url.Values) (r *Response, items []job.Schedule, next string, err error) {
	return page[job.Schedule](ctx, c, "/schedules", query)
}

// GetSchedule reads a schedule, with what it saves.
func (c *Client) GetSchedule(ctx context.Context, id string) (*Response, Schedule, error) {
	return ask[Schedule](ctx, c, http.MethodGet, "/schedules/"+escape(id), nil)
}

// CreateSchedule makes a schedule; dry only shows what it would be.
func (c *Client) CreateSchedule(ctx context.Context, request any, dry bool) (*Response, Schedule, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, Schedule{}, err
	}
	path := "/schedules"
	if dry {
		r, err := c.Do(ctx, http.MethodPost, path, url.Values{"dryRun": {"true"}}, body, nil)
		if err != nil {
			return r, Schedule{}, err
		}
		var s struct {
			Data Schedule `json:"data"`
		}
		err = json.Unmarshal(r.Body, &s)
		return r, s.Data, err
	}
	return ask[Schedule](ctx, c, http.MethodPost, path, body)
}

// PatchSchedule changes a schedule.
func (c *Client) PatchSchedule(ctx context.Context, id string, change any) (*Response, Schedule, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, Schedule{}, err
	}
	return ask[Schedule](ctx, c, http.MethodPatch, "/schedules/"+escape(id), body)
}

// DeleteSchedule ends a schedule; what it paused stays paused.
func (c *Client) DeleteSchedule(ctx context.Context, id string) (*Response, error) {
	return c.Do(ctx, http.MethodDelete, "/schedules/"+escape(id), nil, nil, nil)
}
