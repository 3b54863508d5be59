package aws

import "time"

// guestState is what runs inside an instance.
type guestState struct {
	Running time.Time // since when
	Dead    bool
}

func (g *guestState) stop() {}

func (e *EC2) boot(sc *ec2Scope, i *Instance) {
	i.Guest.Running = e.cloud.World.Now()
}

func (e *EC2) guestEvent(sc *ec2Scope, key string) {}
