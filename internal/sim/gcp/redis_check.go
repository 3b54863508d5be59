package gcp

import (
	"net/netip"
	"slices"
	"strings"
)

// redisVersions are those that are offered ("Supported versions", Memorystore for Redis), the oldest first.
var redisVersions = []string{"REDIS_4_0", "REDIS_5_0", "REDIS_6_X", "REDIS_7_0", "REDIS_7_2"}

// redisConfigs are the parameters that can be set ("Supported Redis configurations").
var redisConfigs = []string{"maxmemory-policy", "notify-keyspace-events", "activedefrag", "lfu-decay-time", "lfu-log-factor", "maxmemory-gb", "stream-node-max-bytes", "stream-node-max-entries", "maxmemory-clients"}

// check refuses an instance that does not go together, or has no room.
func (s *memorystoreRedis) check(r *request, in *redisInstance, location string) error {
	d := in.Doc
	setDefault(d, "redisVersion", "REDIS_7_0")
	for _, f := range []string{"locationId", "alternativeLocationId"} {
		if z := str(d, f); z != "" && (!zoneExists(z) || regionOf(z) != location) {
			return redisInvalid(f, "Zone '%s' is not in region '%s'.", z, location)
		}
	}
	if z := str(d, "alternativeLocationId"); z != "" && (z == str(d, "locationId") || str(d, "tier") != "STANDARD_HA") {
		return redisInvalid("alternative_location_id", "The alternative zone must be another one, and needs the tier STANDARD_HA.")
	}
	if err := checkRedis(in); err != nil {
		return err
	}
	var used float64
	for _, o := range s.inOrder("projects/" + r.Project.ID + "/locations/" + location + "/") {
		used += num(o.Doc, "memorySizeGb")
	}
	if limit := s.cloud.quota("redis", "capacity-gb-per-region", r.Project.ID, location); used+num(d, "memorySizeGb") > limit {
		return &Error{HTTP: 429, Reason: "rateLimitExceeded", Status: "RESOURCE_EXHAUSTED", Message: "Quota limit 'TotalCapacityGbPerRegion' has been exceeded. Limit: " + text(limit) + " in region " + location + "."}
	}
	return nil
}

func checkRedis(in *redisInstance) error {
	d := in.Doc
	size, replicas := num(d, "memorySizeGb"), num(d, "replicaCount")
	reads := str(d, "readReplicasMode") == "READ_REPLICAS_ENABLED"
	switch {
	case str(d, "tier") == "" || str(d, "tier") == "TIER_UNSPECIFIED":
		return redisInvalid("instance.tier", "Tier must be specified.")
	case size < 1 || size > 300:
		return redisInvalid("instance.memory_size_gb", "memory_size_gb must be between 1 and 300, not %v.", size)
	case !slices.Contains(redisVersions, str(d, "redisVersion")):
		return redisInvalid("instance.redis_version", "Redis version '%s' is not supported.", str(d, "redisVersion"))
	case reads && str(d, "tier") != "STANDARD_HA":
		return redisInvalid("instance.read_replicas_mode", "Read replicas need the tier STANDARD_HA.")
	case reads && size < 5:
		return redisInvalid("instance.memory_size_gb", "Read replicas need at least 5 GB.")
	case replicas > 5 || (replicas > 1 && !reads) || (replicas > 0 && str(d, "tier") == "BASIC"):
		return redisInvalid("instance.replica_count", "replica_count %v is not valid for this tier.", replicas)
	}
	for k := range sub(d, "redisConfigs") {
		if !slices.Contains(redisConfigs, k) {
			return redisInvalid("instance.redis_configs", "Redis configuration '%s' is not supported.", k)
		}
	}
	for _, w := range docs(sub(d, "maintenancePolicy"), "weeklyMaintenanceWindow") {
		at := sub(w, "startTime")
		if str(w, "day") == "" || num(at, "minutes") != 0 || num(at, "seconds") != 0 || num(at, "hours") > 23 {
			return redisInvalid("instance.maintenance_policy", "A maintenance window needs a day and a start on the hour.")
		}
	}
	for k, v := range labelsOf(d) {
		if !labelKey.MatchString(k) || !labelValue.MatchString(v) {
			return redisInvalid("instance.labels", "Invalid label %s=%s.", k, v)
		}
	}
	return nil
}

// settle gives a new instance its place in the network, and what the service adds.
func (s *memorystoreRedis) settle(r *request, in *redisInstance, location string) error {
	d := in.Doc
	setDefault(d, "authorizedNetwork", "projects/"+r.Project.ID+"/global/networks/default")
	setDefault(d, "connectMode", "DIRECT_PEERING")
	path := s.cloud.pathOfLink(r.Project.ID, str(d, "authorizedNetwork"))
	if path == "" || segmentAfter(path, "projects") != r.Project.ID && !in.private() || s.cloud.compute.at(path) == nil {
		return redisInvalid("instance.authorized_network", "authorized_network must exist in the same project as redis instance")
	}
	r.Touch(path)
	d["authorizedNetwork"] = path
	bits := 29
	if str(d, "readReplicasMode") == "READ_REPLICAS_ENABLED" {
		bits = 28
	}
	if err := s.place(in, path, bits); err != nil {
		return err
	}
	d["reservedIpRange"] = in.Block
	d["name"], d["state"], d["createTime"] = in.Name, "CREATING", zuluTime(in.Created)
	for k, v := range (Doc{"transitEncryptionMode": "DISABLED", "readReplicasMode": "READ_REPLICAS_DISABLED", "persistenceConfig": Doc{"persistenceMode": "DISABLED"}}) {
		setDefault(d, k, v)
	}
	d["persistenceIamIdentity"] = "serviceAccount:service-" + r.Project.Number + "@cloud-redis.iam.gserviceaccount.com"
	d["maintenanceVersion"], d["availableMaintenanceVersions"] = "20260810_00_00", []any{"20261005_00_01"}
	zones := zoneNames(location)
	i := int(s.cloud.World.Fraction("redis zone", in.Name) * float64(len(zones)))
	setDefault(d, "locationId", zones[i])
	d["currentLocationId"] = str(d, "locationId")
	nodes := []any{Doc{"id": "node-0", "zone": str(d, "locationId")}}
	if str(d, "tier") == "STANDARD_HA" {
		next := zones[(slices.Index(zones, str(d, "locationId"))+1)%len(zones)]
		setDefault(d, "alternativeLocationId", next)
		setDefault(d, "replicaCount", 1.0)
		nodes = append(nodes, Doc{"id": "node-1", "zone": str(d, "alternativeLocationId")})
	}
	d["nodes"] = nodes
	in.Auth = s.cloud.World.UUID()
	return nil
}

// place finds the addresses of an instance: in an allocated range of the private connection, or in what the network does not use.
func (s *memorystoreRedis) place(in *redisInstance, network string, bits int) error {
	asked := str(in.Doc, "reservedIpRange")
	if in.private() {
		c := s.cloud.peering.connection(network)
		switch {
		case c == nil:
			return &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: "Google private service access is not enabled. Enable privateservice access and try again."}
		case asked != "" && !slices.Contains(c.Ranges, lastPart(asked)):
			return redisInvalid("instance.reserved_ip_range", "The allocated IP range '%s' is not part of the private connection of network '%s'.", asked, network)
		}
		block, ok := s.cloud.peering.allocate(network, asked, bits)
		if !ok {
			return &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: noFreeBlocks}
		}
		in.Block = block.String()
		return nil
	}
	var taken []netip.Prefix
	for _, u := range s.cloud.compute.rangesIn(network) {
		taken = append(taken, u.prefix)
	}
	for _, b := range s.blocks(network) {
		taken = append(taken, netip.MustParsePrefix(b))
	}
	if asked != "" {
		p, err := netip.ParsePrefix(asked)
		if err != nil || p.Bits() > bits || slices.ContainsFunc(taken, p.Overlaps) {
			return redisInvalid("instance.reserved_ip_range", "The reserved IP range '%s' is not valid or overlaps with another one.", asked)
		}
		in.Block = asked
		return nil
	}
	if block, ok := freeBlock(netip.MustParsePrefix("10.0.0.0/8"), bits, taken); ok {
		in.Block = strings.TrimSpace(block.String())
		return nil
	}
	return redisInvalid("instance.reserved_ip_range", "There is no free IP range in network '%s'.", network)
}
