package aws

import "fmt"

// An Error is a refusal as AWS words it.
type Error struct {
	Code    string
	Message string
	Status  int // 0 means 400
	// Members are further members of the error's shape, as some JSON services have them (EKS: clusterName, validZones).
	Members map[string]any
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func (e *Error) status() int {
	if e.Status == 0 {
		return 400
	}
	return e.Status
}

// refuse makes an Error with status 400.
func refuse(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// refuseStatus makes an Error with a status of its own.
func refuseStatus(status int, code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Status: status}
}
