package aws

import (
	"slices"
	"strings"
	"time"
)

// FlowLog records the traffic of a VPC, a subnet or an interface.
type FlowLog struct {
	ID              string    `ec2:"flowLogId"`
	Status          string    `ec2:"flowLogStatus"`
	ResourceID      string    `ec2:"resourceId"`
	TrafficType     string    `ec2:"trafficType"`
	LogGroupName    string    `ec2:"logGroupName,omitempty"`
	DestinationType string    `ec2:"logDestinationType"`
	Destination     string    `ec2:"logDestination,omitempty"`
	PermissionARN   string    `ec2:"deliverLogsPermissionArn,omitempty"`
	Delivery        string    `ec2:"deliverLogsStatus,omitempty"`
	DeliveryError   string    `ec2:"deliverLogsErrorMessage,omitempty"`
	Format          string    `ec2:"logFormat"`
	Interval        int       `ec2:"maxAggregationInterval"`
	CreationTime    time.Time `ec2:"creationTime"`
	meta
}

func (f *FlowLog) ident() string { return f.ID }
func (f *FlowLog) kind() string  { return "vpc-flow-log" }

// placed: a flow log is not in the way of its VPC, and goes with it.
func (f *FlowLog) placed() place { return place{f.Status, nil, false} }

func (f *FlowLog) attr(name string) ([]string, bool) {
	v := map[string]string{"flow-log-id": f.ID, "resource-id": f.ResourceID, "traffic-type": f.TrafficType, "log-group-name": f.LogGroupName,
		"log-destination-type": f.DestinationType, "deliver-log-status": f.Delivery}
	s, ok := v[name]
	return []string{s}, ok
}

// defaultFormat is the format of version 2 ("Flow log records", Amazon VPC user guide).
const defaultFormat = "${version} ${account-id} ${interface-id} ${srcaddr} ${dstaddr} ${srcport} ${dstport} ${protocol} ${packets} ${bytes} ${start} ${end} ${action} ${log-status}"

// flowLogService is who delivers the records.
const flowLogService = "vpc-flow-logs.amazonaws.com"

type createFlowLogsIn struct {
	ResourceID       []string `q:"ResourceId|ResourceIds"`
	ResourceType     string
	TrafficType      string
	LogGroupName     string
	LogDestType      string `q:"LogDestinationType"`
	LogDestination   string
	PermissionARN    string `q:"DeliverLogsPermissionArn"`
	LogFormat        string
	Interval         *int `q:"MaxAggregationInterval"`
	ClientToken      string
	TagSpecification []tagSpec
}

type createFlowLogsOut struct {
	Token        string         `ec2:"clientToken,omitempty"`
	IDs          []string       `ec2:"flowLogIdSet"`
	Unsuccessful []unsuccessful `ec2:"unsuccessful"`
}

func (e *EC2) createFlowLogs(r *request, in createFlowLogsIn) (any, error) {
	tags, err := tagsFor(in.TagSpecification, "vpc-flow-log")
	if err != nil {
		return nil, err
	}
	if err := e.checkFlowLog(r, &in); err != nil {
		return nil, err
	}
	id, again, err := e.token(r, in.ClientToken)
	if err != nil {
		return nil, err
	}
	sc := e.in(r.scope())
	out := createFlowLogsOut{Token: in.ClientToken}
	if again && sc.FlowLogs[id] != nil {
		out.IDs = []string{id}
		return out, nil
	}
	interval := 600
	if in.Interval != nil {
		interval = *in.Interval
	}
	for _, resource := range in.ResourceID {
		for _, f := range inOrder(sc.FlowLogs) {
			if f.ResourceID == resource && f.TrafficType == in.TrafficType && f.LogGroupName == in.LogGroupName && f.Destination == in.LogDestination {
				return nil, refuse("FlowLogAlreadyExists", "Error. There is an existing Flow Log with the same configuration and log destination.")
			}
		}
		f := &FlowLog{ID: e.cloud.hex17("fl-"), Status: "ACTIVE", ResourceID: resource, TrafficType: in.TrafficType, LogGroupName: in.LogGroupName,
			DestinationType: in.LogDestType, Destination: in.LogDestination, PermissionARN: in.PermissionARN, Delivery: "SUCCESS", Format: textOr(in.LogFormat, defaultFormat),
			Interval: interval, meta: e.fresh(tags)}
		f.CreationTime = f.Created.Truncate(time.Second)
		sc.FlowLogs[f.ID] = f
		out.IDs = append(out.IDs, f.ID)
		r.Make(f.ID)
	}
	if len(out.IDs) == 1 {
		e.remember(r, in.ClientToken, out.IDs[0])
	}
	return out, nil
}

// checkFlowLog refuses what cannot be logged or delivered, and fills in the defaults.
func (e *EC2) checkFlowLog(r *request, in *createFlowLogsIn) error {
	sc := e.in(r.scope())
	switch {
	case len(in.ResourceID) == 0:
		return missing("resourceIds")
	case !slices.Contains([]string{"VPC", "Subnet", "NetworkInterface"}, in.ResourceType):
		return refuse("InvalidParameterValue", "Value (%s) for parameter resourceType is invalid.", in.ResourceType)
	case !slices.Contains([]string{"ACCEPT", "REJECT", "ALL"}, in.TrafficType):
		return refuse("InvalidParameterValue", "Value (%s) for parameter trafficType is invalid.", in.TrafficType)
	case in.Interval != nil && *in.Interval != 60 && *in.Interval != 600:
		return refuse("InvalidParameterValue", "Value (%d) for parameter maxAggregationInterval is invalid.", *in.Interval)
	}
	for _, id := range in.ResourceID {
		_, vpc := sc.Vpcs[id]
		_, subnet := sc.Subnets[id]
		_, nic := sc.Interfaces[id]
		if known := map[string]bool{"VPC": vpc, "Subnet": subnet, "NetworkInterface": nic}[in.ResourceType]; !known {
			return notFoundByPrefix(id)
		}
	}
	in.LogDestType = textOr(in.LogDestType, "cloud-watch-logs")
	switch in.LogDestType {
	case "cloud-watch-logs":
		return e.checkLogGroup(r, in)
	case "s3":
		bucket, found := strings.CutPrefix(in.LogDestination, "arn:aws:s3:::")
		name, _, _ := strings.Cut(bucket, "/")
		switch {
		case in.PermissionARN != "":
			return refuse("InvalidParameter", "DeliverLogsPermissionArn is not applicable for s3 delivery")
		case !found || e.cloud.platform.s3.state.Buckets[name] == nil:
			return refuse("InvalidParameter", "LogDestination: %s does not exist", name)
		}
		return nil
	}
	return refuse("InvalidParameterValue", "Value (%s) for parameter logDestinationType is invalid.", in.LogDestType)
}

// checkLogGroup wants a role that the delivery service may assume. Whether the group is there shows only later, when nothing
// arrives.
func (e *EC2) checkLogGroup(r *request, in *createFlowLogsIn) error {
	if name, ok := strings.CutPrefix(in.LogDestination, arn("logs", r.Region, r.Account, "log-group:")); ok && in.LogGroupName == "" {
		in.LogGroupName = strings.TrimSuffix(name, ":*")
	}
	switch {
	case in.LogGroupName == "":
		return missing("logGroupName")
	case in.PermissionARN == "":
		return refuse("InvalidParameter", "DeliverLogsPermissionArn can't be empty if LogDestinationType is cloud-watch-logs")
	case !e.cloud.platform.iam.assumableBy(r.Account, in.PermissionARN, flowLogService):
		return refuse("InvalidParameter", "Unable to assume given IAM role: '%s'", in.PermissionARN)
	}
	if in.LogDestination == "" {
		in.LogDestination = arn("logs", r.Region, r.Account, "log-group:"+in.LogGroupName)
	}
	return nil
}

type flowLogsIn struct {
	ID []string `q:"FlowLogId|FlowLogIds"`
	page
}

func (e *EC2) deleteFlowLogs(r *request, in flowLogsIn) (any, error) {
	sc := e.in(r.scope())
	bad := []unsuccessful{}
	for _, id := range in.ID {
		if sc.FlowLogs[id] == nil {
			u := unsuccessful{ResourceID: id}
			u.Error.Code, u.Error.Message = "InvalidFlowLogId.NotFound", "These flow log ids in the input list are not found: [["+id+"]]"
			bad = append(bad, u)
			continue
		}
		delete(sc.FlowLogs, id)
	}
	return struct {
		Unsuccessful []unsuccessful `ec2:"unsuccessful"`
	}{bad}, nil
}

func (e *EC2) describeFlowLogs(r *request, in flowLogsIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).FlowLogs, in.ID, in.Filter, noFlowLog)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 1, 1000)
	return struct {
		Logs []*FlowLog `ec2:"flowLogSet"`
		Next string     `ec2:"nextToken,omitempty"`
	}{items, next}, err
}
