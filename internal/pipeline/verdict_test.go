package pipeline

import (
	"context"
	"testing"
)

func TestAllPanicsWhereItWasCalled(t *testing.T) {
	ran := false
	defer func() {
		if v := recover(); v != "a defect" || !ran {
			t.Errorf("recovered %v; the neighbour ran: %t", v, ran)
		}
	}()
	err := All(t.Context(),
		func(context.Context) error { panic("a defect") },
		func(context.Context) error { ran = true; return nil })
	t.Errorf("no panic, but %v", err)
}
