package gcp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// A userChange is the operation on a user of an instance that was begun last and has
// not been seen done. A crash forgets it: then the call is repeated once, which gives
// the user what it has.
type userChange struct {
	operation string
	about     string   // in words, for who waits
	step      userStep // what it does
	password  [sha256.Size]byte
	since     time.Time
}

type userStep int

const (
	passwordStep userStep = iota // the user is made, or gets its password
	rolesStep
	dropStep
)

// userChanges are those of every instance, by instance and user. They outlive the
// clients of an account, which are made afresh every hour.
type userChanges struct {
	mu  sync.Mutex
	all map[string]userChange
}

func (c *userChanges) get(key string) (userChange, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, ok := c.all[key]
	return u, ok
}

func (c *userChanges) put(key string, u userChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]userChange{}
	}
	c.all[key] = u
}

func (c *userChanges) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, key)
}

// userPatience is how long an operation on a user is waited for, in cloud time: they
// take seconds, or minutes while a backup is being taken.
const userPatience = 30 * time.Minute

func (a sqlAccess) userKey(name string) string {
	return "projects/" + a.p.project + "/instances/" + a.instance + "/users/" + name
}

// setUser makes a user of MySQL, or gives it another password, and takes from it the
// role that Cloud SQL gives to every user it makes: nobody but the administrator is
// a member of cloudsqlsuperuser ("About MySQL users").
func (a sqlAccess) setUser(ctx context.Context, name, password string) error {
	want := userChange{about: "user " + name, step: passwordStep, password: sha256.Sum256([]byte(password))}
	last, known, err := a.underWay(ctx, name)
	if err != nil {
		return err
	}
	users := a.p.data.sql.Users
	if !known || last.step == dropStep || last.password != want.password {
		err := a.change(ctx, name, want, func() (*sqladmin.Operation, error) { return a.putUser(ctx, name, password) })
		if err != nil {
			return err
		}
	} else if last.step == rolesStep {
		return nil
	}
	want.about, want.step = "the roles of user "+name, rolesStep
	return a.change(ctx, name, want, func() (*sqladmin.Operation, error) {
		return send(ctx, users.Update(a.p.project, a.instance, &sqladmin.User{Name: name}).Name(name).Host("%").RevokeExistingRoles(true))
	})
}

// putUser makes a user, or gives the one that is there another password.
func (a sqlAccess) putUser(ctx context.Context, name, password string) (*sqladmin.Operation, error) {
	users := a.p.data.sql.Users
	out, err := send(ctx, users.List(a.p.project, a.instance))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(out.Items, func(u *sqladmin.User) bool { return u.Name == name }) {
		return send(ctx, users.Update(a.p.project, a.instance, &sqladmin.User{Name: name, Password: password}).Name(name).Host("%"))
	}
	return send(ctx, users.Insert(a.p.project, a.instance, &sqladmin.User{Name: name, Host: "%", Password: password, Type: "BUILT_IN"}))
}

// dropUser drops a user of MySQL; one that is gone is fine.
func (a sqlAccess) dropUser(ctx context.Context, name string) error {
	last, known, err := a.underWay(ctx, name)
	if known && last.step == dropStep {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	if _, still := a.p.users.get(a.userKey(name)); still {
		return err // one change at a time; how another ended makes no difference
	}
	return pipeline.Unless(a.change(ctx, name, userChange{about: "user " + name, step: dropStep}, func() (*sqladmin.Operation, error) {
		return send(ctx, a.p.data.sql.Users.Delete(a.p.project, a.instance).Name(name).Host("%"))
	}), pipeline.NotFound)
}

// change sends a change of a user and remembers its operation until it has ended, so
// that a later pass waits for it and does not repeat the call.
func (a sqlAccess) change(ctx context.Context, name string, u userChange, call func() (*sqladmin.Operation, error)) error {
	op, err := call()
	if err := a.accepted(u.about, err); err != nil {
		return err
	}
	u.operation, u.since = op.Name, time.Now()
	a.p.users.put(a.userKey(name), u)
	return a.follow(ctx, name, u, op)
}

// underWay waits for the operation on a user that an earlier pass has begun. It tells
// what that was to do; known is false if there was none.
func (a sqlAccess) underWay(ctx context.Context, name string) (u userChange, known bool, err error) {
	u, known = a.p.users.get(a.userKey(name))
	if !known {
		return u, false, nil
	}
	op, err := send(ctx, a.p.data.sql.Operations.Get(a.p.project, u.operation))
	if pipeline.Is(err, pipeline.NotFound) { // it never was
		a.p.users.forget(a.userKey(name))
		return u, false, nil
	}
	if err != nil {
		return u, true, err
	}
	return u, true, a.follow(ctx, name, u, op)
}

// follow looks at an operation until it has ended, or for a while.
func (a sqlAccess) follow(ctx context.Context, name string, u userChange, op *sqladmin.Operation) error {
	ended, err := a.ended(ctx, u.about, op)
	switch {
	case ended:
		a.p.users.forget(a.userKey(name))
		return err
	case err != nil:
		return err
	case a.p.pace.Cloud(time.Since(u.since)) <= userPatience:
		return a.carriedOut(u.about)
	}
	u.since = time.Now() // whoever asks again goes on waiting
	a.p.users.put(a.userKey(name), u)
	return pipeline.Fatal("timed-out", fmt.Sprintf("Cloud SQL has not carried out the change of %s of instance %s: operation %s is not done after %s", u.about, a.instance, u.operation, userPatience),
		fmt.Sprintf("Look at it (gcloud sql operations describe %s), then ask again: it is waited for, and nothing is sent twice.", u.operation))
}
