package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// directoryService is the shelf that keeps the service principals which were made while the world runs.
const directoryService = "directory"

// A directory is who there is besides the configured clients. It has a lock of its own: callers are authenticated without the world's.
type directory struct {
	mu    sync.RWMutex
	added []Client
}

func (c *Cloud) addDirectory() {
	s := c.newShelf(directoryService)
	take := func() {
		var added []Client
		c.extra(directoryService, "clients", &added)
		c.directory.mu.Lock()
		defer c.directory.mu.Unlock()
		c.directory.added = added
	}
	s.fresh, s.restored = take, take
}

// clients are all service principals; one that was added stands in for the configured one of its ID.
func (c *Cloud) clients() []Client {
	c.directory.mu.RLock()
	defer c.directory.mu.RUnlock()
	out := slices.Clone(c.opt.Clients)
	for _, cl := range c.directory.added {
		if i := slices.IndexFunc(out, func(old Client) bool { return strings.EqualFold(old.ID, cl.ID) }); i >= 0 {
			out[i] = cl
		} else {
			out = append(out, cl)
		}
	}
	return out
}

// client is the service principal of an application's ID.
func (c *Cloud) client(id string) (Client, bool) {
	all := c.clients()
	i := slices.IndexFunc(all, func(cl Client) bool { return strings.EqualFold(cl.ID, id) })
	if i < 0 {
		return Client{}, false
	}
	return all[i], true
}

// SetClient makes a service principal, or changes the one of its ID: another secret, other subscriptions. The tokens that it has
// stay good until they expire.
func (c *Cloud) SetClient(cl Client) {
	c.World.Lock()
	defer c.World.Unlock()
	c.setClient(cl)
}

func (c *Cloud) setClient(cl Client) {
	c.directory.mu.Lock()
	c.directory.added = append(slices.DeleteFunc(c.directory.added, func(old Client) bool { return strings.EqualFold(old.ID, cl.ID) }), cl)
	c.keepExtra(directoryService, "clients", c.directory.added)
	c.directory.mu.Unlock()
	c.registerAll()
}

// invokeDirectory makes a service principal for the control API: PUT of /applications/{its ID}, with the members of Client as the
// body ("tokenLife" as a text such as "10m").
func (c *Cloud) invokeDirectory(method, path string, body doc) (any, error) {
	id, ok := strings.CutPrefix(path, "/applications/")
	if !ok || id == "" || !strings.EqualFold(method, "PUT") {
		return nil, errors.New("the directory knows PUT /applications/{client ID} alone")
	}
	var in struct {
		Secret        string       `json:"secret"`
		ObjectID      string       `json:"objectId"`
		Name          string       `json:"name"`
		Subscriptions []string     `json:"subscriptions"`
		Groups        []string     `json:"groups"`
		Federated     []Federation `json:"federated"`
		TokenLife     string       `json:"tokenLife"`
	}
	raw, err := json.Marshal(body)
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err != nil {
		return nil, fmt.Errorf("params: body: %w", err)
	}
	cl := Client{ID: id, Secret: in.Secret, ObjectID: in.ObjectID, Name: in.Name, Subscriptions: in.Subscriptions, Groups: in.Groups, Federated: in.Federated}
	if in.TokenLife != "" {
		if cl.TokenLife, err = time.ParseDuration(in.TokenLife); err != nil {
			return nil, fmt.Errorf("params: tokenLife: %w", err)
		}
	}
	if cl.ObjectID == "" {
		cl.ObjectID = c.World.UUID()
	}
	c.setClient(cl)
	return map[string]any{"appId": cl.ID, "id": cl.ObjectID, "displayName": cl.Name}, nil
}
