package aws

import (
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/sim"
)

// The limits of RDS, as Service Quotas lists them ("Quotas and constraints for Amazon RDS").
const (
	quotaDBInstances  = "L-7B6409FD"
	quotaDBSubnets    = "L-48C6BF61"
	quotaDBParameters = "L-DE55804A"
	quotaDBSnapshots  = "L-272F1212"
	quotaDBStorage    = "L-7ADDB58A"
	quotaDBReplicas   = "L-5BC124EF"
)

func newRDS(c *Cloud) *rdsService {
	s := &rdsService{cloud: c, state: &RDSState{}}
	for _, q := range []sim.Quota{
		{Code: quotaDBInstances, Name: "DB instances", Default: 40},
		{Code: quotaDBSubnets, Name: "DB subnet groups", Default: 50},
		{Code: quotaDBParameters, Name: "Parameter groups", Default: 50},
		{Code: quotaDBSnapshots, Name: "Manual DB instance snapshots", Default: 100},
		{Code: quotaDBStorage, Name: "Total storage for all DB instances", Default: 100000, Unit: "Gigabytes"},
		{Code: quotaDBReplicas, Name: "Read replicas per primary", Default: 15},
	} {
		q.Cloud, q.Service, q.Unit, q.Adjustable = "aws", "rds", orText(q.Unit, "None"), true
		c.World.DefineQuota(q)
	}
	c.World.Register(s)
	c.hooks.logGroupDeleted = append(c.hooks.logGroupDeleted, s.logGroupDeleted)
	c.servers.sources = append(c.servers.sources, s.wantedServers)
	c.add(&api{
		service: "rds", protocol: queryProtocol, namespace: "http://rds.amazonaws.com/doc/2014-10-31/", version: "2014-10-31",
		ops: overQuery(s.operations(), "*"), encode: encodeSchema, around: c.servers.lockedSync,
		secrets: []string{"MasterUserPassword", "TdeCredentialPassword"},
	})
	return s
}

// operations is the API of RDS.
func (s *rdsService) operations() map[string]typedOp {
	return map[string]typedOp{
		"CreateDBInstance": op(s.createInstance), "DescribeDBInstances": op(s.describeInstances), "ModifyDBInstance": op(s.modifyInstance),
		"DeleteDBInstance": op(s.deleteInstance), "StopDBInstance": op(s.stopInstance), "StartDBInstance": op(s.startInstance), "RebootDBInstance": op(s.rebootInstance),
		"CreateDBInstanceReadReplica": op(s.createReplica), "PromoteReadReplica": op(s.promoteReplica),
		"CreateDBSubnetGroup": op(s.createSubnetGroup), "DescribeDBSubnetGroups": op(s.describeSubnetGroups), "DeleteDBSubnetGroup": op(s.deleteSubnetGroup),
		"CreateDBParameterGroup": op(s.createParameterGroup), "DescribeDBParameterGroups": op(s.describeParameterGroups), "DeleteDBParameterGroup": op(s.deleteParameterGroup),
		"ModifyDBParameterGroup": op(s.modifyParameterGroup), "DescribeDBParameters": op(s.describeParameters),
		"DescribeDBEngineVersions": op(s.describeVersions), "DescribeDBMajorEngineVersions": op(s.describeMajors), "DescribeOrderableDBInstanceOptions": op(s.describeOrderable),
		"CreateDBSnapshot": op(s.createSnapshot), "DescribeDBSnapshots": op(s.describeSnapshots), "DeleteDBSnapshot": op(s.deleteSnapshot),
		"DescribeDBSnapshotAttributes": op(s.describeSnapshotAttributes), "ModifyDBSnapshotAttribute": op(s.modifySnapshotAttribute),
		"DescribeDBInstanceAutomatedBackups": op(s.describeBackups), "DeleteDBInstanceAutomatedBackup": op(s.deleteBackup),
		"DescribeCertificates": op(s.describeCertificates), "DescribeAccountAttributes": op(s.describeAccountAttributes),
		"DescribePendingMaintenanceActions": op(s.describeMaintenance),
		"AddTagsToResource":                 op(s.addTags), "RemoveTagsFromResource": op(s.removeTags), "ListTagsForResource": op(s.listTags),
	}
}

// The refusals of RDS.

func rdsInvalid(format string, args ...any) error {
	return fail(400, "InvalidParameterValue", format, args...)
}

func rdsCombination(format string, args ...any) error {
	return fail(400, "InvalidParameterCombination", format, args...)
}

func rdsMissing(name string) error {
	return fail(400, "MissingParameter", "The request must contain the parameter %s.", name)
}

// dbIdentifier: "Must contain from 1 to 63 letters, numbers, or hyphens; first character must be a letter; can't end with a
// hyphen or contain two consecutive hyphens" (CreateDBInstance).
var dbIdentifier = regexp.MustCompile(`^[A-Za-z](-?[A-Za-z0-9])*$`)

func checkIdentifier(parameter, id string, most int) error {
	if !dbIdentifier.MatchString(id) {
		return rdsInvalid("The parameter %s is not a valid identifier. Identifiers must begin with a letter; must contain only ASCII letters, digits, and hyphens; and must not end with a hyphen or contain two consecutive hyphens.", parameter)
	}
	if len(id) > most {
		return rdsInvalid("The parameter %s is not a valid identifier because it is longer than %d characters.", parameter, most)
	}
	return nil
}

// instance finds an instance by identifier or ARN.
func (s *rdsService) instance(c *reqCtx, id *string) (*RDSInstance, error) {
	if deref(id) == "" {
		return nil, rdsMissing("DBInstanceIdentifier")
	}
	name := strings.ToLower(strings.TrimPrefix(*id, c.regionalARN("rds", "db:")))
	i := s.in(c.scope()).Instances[name]
	if i == nil || !c.visible(i.arn(), i.Requested, false, "db-instance", name, mapValues(rdsTags(i.DB.TagList))) {
		return nil, fail(404, "DBInstanceNotFound", "DBInstance %s not found.", name)
	}
	c.Touch(i.arn())
	return i, nil
}

// rdsPage cuts a page: MaxRecords is 20 to 100, the marker says where it goes on.
func rdsPage[T any](c *reqCtx, all []T, marker *string, most *int32) ([]T, *string, error) {
	n := int(orDefault(most, 100))
	if n < 20 || n > 100 {
		return nil, nil, rdsInvalid("Invalid value %d for MaxRecords. Must be between 20 and 100", n)
	}
	page, next, err := pageOf(c, all, marker, n)
	if err != nil {
		return nil, nil, rdsInvalid("Invalid or expired marker: %s", deref(marker))
	}
	if page == nil {
		page = []T{}
	}
	return page, next, nil
}

// checkDBTags refuses tags that break the rules ("Tagging Amazon RDS resources").
func checkDBTags(tags []types.Tag) error {
	seen := map[string]bool{}
	for _, t := range tags {
		k, v := deref(t.Key), deref(t.Value)
		switch {
		case k == "" || len([]rune(k)) > 128 || len([]rune(v)) > 256 || !eksTagPattern.MatchString(k) || !eksTagPattern.MatchString(v):
			return rdsInvalid("Invalid tag key or value: %s", k)
		case strings.HasPrefix(strings.ToLower(k), "aws:") || strings.HasPrefix(strings.ToLower(k), "rds:"):
			return rdsInvalid("Tag keys beginning with aws: or rds: are reserved: %s", k)
		case seen[k]:
			return rdsInvalid("Duplicate tag key: %s", k)
		}
		seen[k] = true
	}
	if len(seen) > 50 {
		return rdsInvalid("A resource can have up to 50 tags.")
	}
	return nil
}
