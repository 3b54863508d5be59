package aws

import (
	"encoding/base64"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

type statusDetail struct {
	Name   string `ec2:"name"`
	Status string `ec2:"status"`
}

type statusSummary struct {
	Status  string         `ec2:"status"`
	Details []statusDetail `ec2:"details"`
}

type instanceStatus struct {
	InstanceID string        `ec2:"instanceId"`
	Zone       string        `ec2:"availabilityZone"`
	ZoneID     string        `ec2:"availabilityZoneId"`
	Operator   operator      `ec2:"operator"`
	State      stateCode     `ec2:"instanceState"`
	System     statusSummary `ec2:"systemStatus"`
	Instance   statusSummary `ec2:"instanceStatus"`
	Ebs        statusSummary `ec2:"attachedEbsStatus"`
}

type describeStatusIn struct {
	InstanceID []string `q:"InstanceId"`
	All        bool     `q:"IncludeAllInstances"`
	page
}

func (e *EC2) describeStatus(r *request, in describeStatusIn) (any, error) {
	sc := e.in(r.scope())
	if err := malformed(in.InstanceID); err != nil {
		return nil, err
	}
	if err := notBoth(in.InstanceID, in.page); err != nil {
		return nil, err
	}
	var plain, special []Filter
	for _, f := range in.Filter {
		if strings.HasSuffix(f.Name, ".status") || strings.HasSuffix(f.Name, ".reachability") {
			special = append(special, f)
		} else {
			plain = append(plain, f)
		}
	}
	found, err := find(e, r, sc.Instances, in.InstanceID, plain, noInstance)
	if err != nil {
		return nil, err
	}
	out := []instanceStatus{}
	for _, i := range found {
		if i.Status.Name != "running" && !in.All {
			continue
		}
		s := instanceStatus{InstanceID: i.InstanceID, Zone: i.Placement.Zone, ZoneID: i.Placement.ZoneID, State: i.Status}
		status, detail := "not-applicable", ""
		if i.Status.Name == "running" {
			status, detail = "ok", "passed"
			if e.cloud.World.Now().Sub(i.RunningSince) < checksTime {
				status, detail = "initializing", "initializing"
			}
		}
		sum := statusSummary{Status: status}
		if detail != "" {
			sum.Details = []statusDetail{{"reachability", detail}}
		}
		s.System, s.Instance, s.Ebs = sum, sum, sum
		if g := sc.Guests[i.InstanceID]; g != nil && g.Dead {
			s.Instance = statusSummary{"impaired", []statusDetail{{"reachability", "failed"}}}
		}
		keep, err := filterMap(map[string]string{"instance-status.status": s.Instance.Status, "system-status.status": s.System.Status,
			"instance-status.reachability": detail, "system-status.reachability": detail}, special)
		if err != nil {
			return nil, err
		}
		if keep {
			out = append(out, s)
		}
	}
	items, next, err := paginate(e.cloud, r, out, in.page, 5, 1000)
	return struct {
		Statuses []instanceStatus `ec2:"instanceStatusSet"`
		Next     string           `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

type describeAttributeIn struct {
	InstanceID string `q:"InstanceId"`
	Attribute  string
}

type optionalText struct {
	Value string `ec2:"value,omitempty"`
}

func (e *EC2) describeAttribute(r *request, in describeAttributeIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances([]string{in.InstanceID})
	if err != nil {
		return nil, err
	}
	i := found[0]
	type answer struct {
		InstanceID  string           `ec2:"instanceId"`
		Termination *attributeBool   `ec2:"disableApiTermination"`
		Stop        *attributeBool   `ec2:"disableApiStop"`
		Ebs         *attributeBool   `ec2:"ebsOptimized"`
		Ena         *attributeBool   `ec2:"enaSupport"`
		Check       *attributeBool   `ec2:"sourceDestCheck"`
		Shutdown    *attributeText   `ec2:"instanceInitiatedShutdownBehavior"`
		Type        *attributeText   `ec2:"instanceType"`
		Root        *attributeText   `ec2:"rootDeviceName"`
		UserData    *optionalText    `ec2:"userData"`
		Groups      []groupRef       `ec2:"groupSet,omitempty"`
		Devices     []attachedVolume `ec2:"blockDeviceMapping,omitempty"`
		Kernel      *optionalText    `ec2:"kernel"`
		Ramdisk     *optionalText    `ec2:"ramdisk"`
	}
	out := answer{InstanceID: i.InstanceID}
	switch in.Attribute {
	case "disableApiTermination":
		out.Termination = &attributeBool{i.DisableApiTermination}
	case "disableApiStop":
		out.Stop = &attributeBool{i.DisableApiStop}
	case "ebsOptimized":
		out.Ebs = &attributeBool{i.EbsOptimized}
	case "enaSupport":
		out.Ena = &attributeBool{i.Ena}
	case "sourceDestCheck":
		out.Check = &attributeBool{i.SourceDestCheck != nil && *i.SourceDestCheck}
	case "instanceInitiatedShutdownBehavior":
		out.Shutdown = &attributeText{i.ShutdownBehavior}
	case "instanceType":
		out.Type = &attributeText{i.InstanceType}
	case "rootDeviceName":
		out.Root = &attributeText{i.RootName}
	case "userData":
		out.UserData = &optionalText{i.UserData}
	case "groupSet":
		out.Groups = i.Groups
	case "blockDeviceMapping":
		out.Devices = i.Devices
	case "kernel":
		out.Kernel = &optionalText{}
	case "ramdisk":
		out.Ramdisk = &optionalText{}
	case "":
		return nil, missing("attribute")
	default:
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter attribute is invalid. Unknown attribute.", in.Attribute)
	}
	return out, nil
}

type modifyAttributeIn struct {
	InstanceID            string   `q:"InstanceId"`
	GroupID               []string `q:"GroupId|Groups"`
	DisableApiTermination *attributeBool
	DisableApiStop        *attributeBool
	EbsOptimized          *attributeBool
	SourceDestCheck       *attributeBool
	InstanceType          *attributeText
	UserData              *attributeText
	ShutdownBehavior      *attributeText `q:"InstanceInitiatedShutdownBehavior"`
	Attribute             string
	Value                 string
}

func (e *EC2) modifyAttribute(r *request, in modifyAttributeIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances([]string{in.InstanceID})
	if err != nil {
		return nil, err
	}
	i := found[0]
	if in.Attribute == "disableApiTermination" || in.Attribute == "disableApiStop" {
		b, err := strconv.ParseBool(strings.ToLower(in.Value))
		if err != nil {
			return nil, refuse("InvalidParameterValue", "Value (%s) for parameter value is invalid.", in.Value)
		}
		if in.Attribute == "disableApiStop" {
			in.DisableApiStop = &attributeBool{b}
		} else {
			in.DisableApiTermination = &attributeBool{b}
		}
	}
	if (in.InstanceType != nil || in.UserData != nil || in.EbsOptimized != nil) && i.Status.Name != "stopped" {
		return nil, refuse("IncorrectInstanceState", "The instance '%s' is not in the 'stopped' state.", i.InstanceID)
	}
	if len(in.GroupID) > 0 {
		groups, err := sc.groupRefs(i.VpcID, in.GroupID)
		if err != nil {
			return nil, err
		}
		i.Groups = groups
		if n := sc.primary(i); n != nil {
			n.Groups = groups
		}
	}
	if in.InstanceType != nil {
		t, ok := instanceTypes[in.InstanceType.Value]
		if !ok || t.arch != i.Architecture {
			return nil, refuse("InvalidInstanceAttributeValue", "Invalid value '%s' for InstanceType.", in.InstanceType.Value)
		}
		i.InstanceType = t.name
	}
	set := func(dst *bool, a *attributeBool) {
		if a != nil {
			*dst = a.Value
		}
	}
	set(&i.DisableApiTermination, in.DisableApiTermination)
	set(&i.DisableApiStop, in.DisableApiStop)
	set(&i.EbsOptimized, in.EbsOptimized)
	if in.SourceDestCheck != nil {
		i.SourceDestCheck = &in.SourceDestCheck.Value
		if n := sc.primary(i); n != nil {
			n.SourceDestCheck = in.SourceDestCheck.Value
		}
	}
	if in.UserData != nil {
		if _, err := base64.StdEncoding.DecodeString(in.UserData.Value); err != nil {
			return nil, refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
		}
		i.UserData = in.UserData.Value
	}
	if in.ShutdownBehavior != nil {
		i.ShutdownBehavior = in.ShutdownBehavior.Value
	}
	return returned{true}, nil
}

type modifyMetadataIn struct {
	InstanceID string `q:"InstanceId"`
	launchMetadata
}

func (e *EC2) modifyMetadata(r *request, in modifyMetadataIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances([]string{in.InstanceID})
	if err != nil {
		return nil, err
	}
	m := &found[0].Metadata
	m.Tokens, m.Endpoint = textOr(in.Tokens, m.Tokens), textOr(in.Endpoint, m.Endpoint)
	m.Ipv6, m.Tags = textOr(in.Ipv6, m.Ipv6), textOr(in.launchMetadata.Tags, m.Tags)
	if in.HopLimit != nil {
		m.HopLimit = *in.HopLimit
	}
	shown := *m
	shown.State = "pending"
	return struct {
		InstanceID string          `ec2:"instanceId"`
		Options    metadataOptions `ec2:"instanceMetadataOptions"`
	}{in.InstanceID, shown}, nil
}

type profileAssociation struct {
	ID         string       `ec2:"associationId"`
	InstanceID string       `ec2:"instanceId"`
	Profile    shownProfile `ec2:"iamInstanceProfile"`
	State      string       `ec2:"state"`
	Timestamp  time.Time    `ec2:"timestamp"`
}

func (i *Instance) association(state string) profileAssociation {
	return profileAssociation{ID: i.ProfileAssociation, InstanceID: i.InstanceID, Profile: *i.Profile, State: state}
}

type associateProfileIn struct {
	InstanceID    string        `q:"InstanceId"`
	AssociationID string        `q:"AssociationId"`
	Profile       launchProfile `q:"IamInstanceProfile"`
}

type profileOut struct {
	Association profileAssociation `ec2:"iamInstanceProfileAssociation"`
}

func (e *EC2) associateProfile(r *request, in associateProfileIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances([]string{in.InstanceID})
	if err != nil {
		return nil, err
	}
	i := found[0]
	if i.Profile != nil {
		return nil, refuse("IncorrectState", "There is an existing association for instance %s", i.InstanceID)
	}
	p, err := e.profile(sc, &in.Profile)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, missing("IamInstanceProfile")
	}
	i.setProfile(e, p)
	return profileOut{i.association("associating")}, nil
}

func (e *EC2) associatedProfile(sc *ec2Scope, id string) (*Instance, error) {
	for _, i := range sc.Instances {
		if i.Profile != nil && i.ProfileAssociation == id {
			return i, nil
		}
	}
	return nil, refuse("NoSuchAssociation", "The association ID '%s' does not exist", id)
}

func (e *EC2) replaceProfile(r *request, in associateProfileIn) (any, error) {
	sc := e.in(r.scope())
	i, err := e.associatedProfile(sc, in.AssociationID)
	if err != nil {
		return nil, err
	}
	p, err := e.profile(sc, &in.Profile)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, missing("IamInstanceProfile")
	}
	i.setProfile(e, p)
	return profileOut{i.association("associating")}, nil
}

func (e *EC2) disassociateProfile(r *request, in associationIn) (any, error) {
	i, err := e.associatedProfile(e.in(r.scope()), in.AssociationID)
	if err != nil {
		return nil, err
	}
	out := profileOut{i.association("disassociating")}
	i.Profile, i.ProfileAssociation, i.ProfileName = nil, "", ""
	return out, nil
}

type describeProfilesIn struct {
	AssociationID []string `q:"AssociationId"`
	page
}

func (e *EC2) describeProfiles(r *request, in describeProfilesIn) (any, error) {
	out := []profileAssociation{}
	for _, i := range inOrder(e.in(r.scope()).Instances) {
		if i.Profile == nil || (len(in.AssociationID) > 0 && !slices.Contains(in.AssociationID, i.ProfileAssociation)) || i.Status.Name == "terminated" {
			continue
		}
		keep, err := filterMap(map[string]string{"instance-id": i.InstanceID, "state": "associated"}, in.Filter)
		if err != nil {
			return nil, err
		}
		if keep && e.seen(r.Call, i, sim.ByList) {
			out = append(out, i.association("associated"))
		}
	}
	sort.SliceStable(out, func(a, b int) bool { return out[a].InstanceID < out[b].InstanceID })
	items, next, err := paginate(e.cloud, r, out, in.page, 5, 1000)
	return struct {
		Associations []profileAssociation `ec2:"iamInstanceProfileAssociationSet"`
		Next         string               `ec2:"nextToken,omitempty"`
	}{items, next}, err
}
