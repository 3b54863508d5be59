package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
)

const tagSchedules = "Schedules"

// ScheduleID is the path parameter of everything about one schedule.
type ScheduleID struct {
	ID string `path:"id" maxLength:"80" doc:"The schedule's ID"`
}

type scheduleOut struct {
	Status   int
	Location string `header:"Location" doc:"Where the schedule is found"`
	Body     Data[*provision.ScheduleView]
}

func scheduleAnswer(status int, v *provision.ScheduleView) *scheduleOut {
	return &scheduleOut{Status: status, Location: "/schedules/" + v.ID, Body: Data[*provision.ScheduleView]{Data: v}}
}

func (s *server) scheduleRoutes() {
	type listIn struct {
		JobID  string `query:"jobId" maxLength:"80" doc:"Of one VM or cluster job alone: its ID or its name"`
		Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"Schedules a page"`
		Cursor string `query:"cursor" maxLength:"80" doc:"nextCursor of the page before"`
	}
	type listOut struct{ Body List[job.Schedule] }
	route(s, huma.Operation{
		OperationID: "list-schedules", Method: http.MethodGet, Path: "/schedules", Tags: []string{tagSchedules},
		Summary: "List schedules", Description: "The newest first, each with when it acts next.", Errors: []int{404, 409, 422},
	}, []access.Policy{access.JobView}, func(ctx context.Context, in *listIn) (*listOut, error) {
		if err := plainText(in.JobID, in.Cursor); err != nil {
			return nil, err
		}
		items, next, err := s.Service.ListSchedules(ctx, in.JobID, in.Limit, in.Cursor)
		if err != nil {
			return nil, err
		}
		return &listOut{listOf(items, next)}, nil
	})
	route(s, huma.Operation{
		OperationID: "get-schedule", Method: http.MethodGet, Path: "/schedules/{id}", Tags: []string{tagSchedules},
		Summary:     "Get a schedule",
		Description: "With what it saves and the arithmetic behind it, and what became of its last due times.", Errors: []int{404},
	}, []access.Policy{access.JobView}, func(ctx context.Context, in *ScheduleID) (*scheduleOut, error) {
		v, err := s.Service.GetSchedule(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return scheduleAnswer(http.StatusOK, v), nil
	})
	s.scheduleChanges()
}

func (s *server) scheduleChanges() {
	type createIn struct {
		DryRun  bool   `query:"dryRun" doc:"true: shows the schedule and what it would save, and saves nothing"`
		RawBody []byte `contentType:"application/json"`
	}
	operate := []access.Policy{access.VMOperate}
	route(s, huma.Operation{
		OperationID: "create-schedule", Method: http.MethodPost, Path: "/schedules", Tags: []string{tagSchedules}, DefaultStatus: http.StatusCreated,
		Summary:     "Pause and resume a pool at set times",
		Description: "By two cron lines, or by a window of the week in which the pool runs. Each due time makes a remediation job, once, however many processes run. Answers 200 for a dry run.",
		Errors:      []int{404, 409, 413, 415, 422},
	}, operate, func(ctx context.Context, in *createIn) (*scheduleOut, error) {
		var r provision.ScheduleRequest
		if err := s.decode(ctx, access.VMOperate, "", in.RawBody, &r); err != nil {
			return nil, err
		}
		v, err := s.Service.CreateSchedule(ctx, r, in.DryRun)
		if err != nil {
			return nil, err
		}
		if in.DryRun {
			out := scheduleAnswer(http.StatusOK, v)
			out.Location = ""
			return out, nil
		}
		return scheduleAnswer(http.StatusCreated, v), nil
	})
	bodyOf[provision.ScheduleRequest](s, "/schedules", http.MethodPost)

	type patchIn struct {
		ScheduleID
		RawBody []byte `contentType:"application/json"`
	}
	route(s, huma.Operation{
		OperationID: "patch-schedule", Method: http.MethodPatch, Path: "/schedules/{id}", Tags: []string{tagSchedules},
		Summary: "Change a schedule, or turn it off and on", Description: "What it paused stays as it is.", Errors: []int{404, 413, 415, 422},
	}, operate, func(ctx context.Context, in *patchIn) (*scheduleOut, error) {
		var r provision.SchedulePatch
		if err := s.decode(ctx, access.VMOperate, in.ID, in.RawBody, &r); err != nil {
			return nil, err
		}
		v, err := s.Service.PatchSchedule(ctx, in.ID, r)
		if err != nil {
			return nil, err
		}
		return scheduleAnswer(http.StatusOK, v), nil
	})
	bodyOf[provision.SchedulePatch](s, "/schedules/{id}", http.MethodPatch)

	route(s, huma.Operation{
		OperationID: "delete-schedule", Method: http.MethodDelete, Path: "/schedules/{id}", Tags: []string{tagSchedules}, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a schedule", Description: "What it paused stays paused until it is resumed.", Errors: []int{404},
	}, operate, func(ctx context.Context, in *ScheduleID) (*struct{}, error) {
		return nil, s.Service.DeleteSchedule(ctx, in.ID)
	})
}
