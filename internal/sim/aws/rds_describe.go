package aws

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
)

func (s *rdsService) describeInstances(c *reqCtx, in *rds.DescribeDBInstancesInput) (*rds.DescribeDBInstancesOutput, error) {
	if in.DBInstanceIdentifier != nil {
		i, err := s.instance(c, in.DBInstanceIdentifier)
		if err != nil {
			return nil, err
		}
		return &rds.DescribeDBInstancesOutput{DBInstances: []types.DBInstance{s.shown(i)}}, nil
	}
	all := []types.DBInstance{}
	sc := s.in(c.scope())
	for _, id := range sortedKeys(sc.Instances) {
		i := sc.Instances[id]
		if c.visible(i.arn(), i.Requested, true, "db-instance", id, mapValues(rdsTags(i.DB.TagList))) &&
			filtered(in.Filters, map[string]string{"db-instance-id": id, "dbi-resource-id": deref(i.DB.DbiResourceId), "engine": i.engine()}) {
			all = append(all, s.shown(i))
		}
	}
	page, next, err := rdsPage(c, all, in.Marker, in.MaxRecords)
	return &rds.DescribeDBInstancesOutput{DBInstances: page, Marker: next}, err
}

// shown is an instance as it is described now.
func (s *rdsService) shown(i *RDSInstance) types.DBInstance {
	db := i.DB
	if db.LatestRestorableTime != nil && i.status() != statusStopped && i.status() != statusDeleting {
		db.LatestRestorableTime = new(s.cloud.World.Now().Truncate(5 * time.Minute))
	}
	return db
}

func (s *rdsService) describeVersions(c *reqCtx, in *rds.DescribeDBEngineVersionsInput) (*rds.DescribeDBEngineVersionsOutput, error) {
	all := []types.DBEngineVersion{}
	engine, want := strings.ToLower(deref(in.Engine)), deref(in.EngineVersion)
	if in.Engine != nil && dbEngineNames[engine] == "" && !otherEngine(engine) {
		return nil, rdsInvalid("Unrecognized engine name: %s", engine)
	}
	for _, v := range dbVersions {
		switch {
		case v.Deprecated && !deref(in.IncludeAll), engine != "" && v.Engine != engine, want != "" && v.Version != want && v.Major != want,
			in.DBParameterGroupFamily != nil && v.family() != *in.DBParameterGroupFamily:
			continue
		case deref(in.DefaultOnly) && v.Version != dbDefault(v.Engine, want):
			continue
		}
		if filtered(in.Filters, map[string]string{"engine": v.Engine, "engine-version": v.Version, "db-parameter-group-family": v.family(), "status": v.status()}) {
			all = append(all, v.described())
		}
	}
	page, next, err := rdsPage(c, all, in.Marker, in.MaxRecords)
	return &rds.DescribeDBEngineVersionsOutput{DBEngineVersions: page, Marker: next}, err
}

// otherEngine says whether RDS has an engine that is not simulated.
func otherEngine(name string) bool {
	for _, p := range []string{"aurora", "mariadb", "oracle", "sqlserver", "db2", "custom"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// dbDefault is the default version of an engine, or of a major version of it: the newest but those that were just released.
func dbDefault(engine, major string) string {
	if v, ok := findDBVersion(engine, major); ok && major != "" {
		return v.Version
	}
	return dbDefaults[engine]
}

func (v dbVersion) status() string {
	if v.Deprecated {
		return "deprecated"
	}
	return statusAvailable
}

func (v dbVersion) described() types.DBEngineVersion {
	name := dbEngineNames[v.Engine]
	out := types.DBEngineVersion{Engine: &v.Engine, EngineVersion: &v.Version, MajorEngineVersion: &v.Major, DBParameterGroupFamily: new(v.family()), DBEngineDescription: &name,
		DBEngineVersionDescription: new(strings.Split(name, " ")[0] + " " + v.Version), Status: new(v.status()), ValidUpgradeTarget: []types.UpgradeTarget{}, ExportableLogTypes: v.logTypes(),
		SupportsLogExportsToCloudwatchLogs: new(true), SupportsReadReplica: new(true), SupportedCACertificateIdentifiers: sortedKeys(dbCAs), SupportsCertificateRotationWithoutRestart: new(true),
		SupportedFeatureNames: []string{}, SupportsParallelQuery: new(false), SupportsGlobalDatabases: new(false), SupportsBabelfish: new(false), SupportsLimitlessDatabase: new(false),
		SupportsLocalWriteForwarding: new(false), SupportsIntegrations: new(false), TagList: []types.Tag{}, SupportedEngineModes: []string{"provisioned"}}
	at := slices.Index(dbVersions, v)
	for _, n := range dbVersions[at+1:] {
		if n.Engine == v.Engine && !n.Deprecated {
			out.ValidUpgradeTarget = append(out.ValidUpgradeTarget, types.UpgradeTarget{Engine: &n.Engine, EngineVersion: &n.Version, Description: new(strings.Split(name, " ")[0] + " " + n.Version),
				AutoUpgrade: new(false), IsMajorVersionUpgrade: new(n.Major != v.Major)})
		}
	}
	return out
}

func (s *rdsService) describeMajors(c *reqCtx, in *rds.DescribeDBMajorEngineVersionsInput) (*rds.DescribeDBMajorEngineVersionsOutput, error) {
	all := []types.DBMajorEngineVersion{}
	seen := map[string]bool{}
	for _, v := range dbVersions {
		if seen[v.family()] || in.Engine != nil && *in.Engine != v.Engine || in.MajorEngineVersion != nil && *in.MajorEngineVersion != v.Major {
			continue
		}
		seen[v.family()] = true
		dates := dbSupport[v.Engine+" "+v.Major]
		all = append(all, types.DBMajorEngineVersion{Engine: &v.Engine, MajorEngineVersion: &v.Major, SupportedEngineLifecycles: []types.SupportedEngineLifecycle{
			{LifecycleSupportName: types.LifecycleSupportNameOpenSourceRdsStandardSupport, LifecycleSupportStartDate: new(supportDate(dates[0])), LifecycleSupportEndDate: new(supportDate(dates[1]).Add(24*time.Hour - time.Second))},
			{LifecycleSupportName: types.LifecycleSupportNameOpenSourceRdsExtendedSupport, LifecycleSupportStartDate: new(supportDate(dates[1]).AddDate(0, 0, 1)), LifecycleSupportEndDate: new(supportDate(dates[2]).Add(24*time.Hour - time.Second))},
		}})
	}
	page, next, err := rdsPage(c, all, in.Marker, in.MaxRecords)
	return &rds.DescribeDBMajorEngineVersionsOutput{DBMajorEngineVersions: page, Marker: next}, err
}

func (s *rdsService) describeOrderable(c *reqCtx, in *rds.DescribeOrderableDBInstanceOptionsInput) (*rds.DescribeOrderableDBInstanceOptionsOutput, error) {
	engine, want := strings.ToLower(deref(in.Engine)), deref(in.EngineVersion)
	switch {
	case engine == "":
		return nil, rdsMissing("Engine")
	case dbEngineNames[engine] == "" && !otherEngine(engine):
		return nil, rdsInvalid("Invalid DB engine: %s", engine)
	}
	all := []types.OrderableDBInstanceOption{}
	for _, v := range dbVersions {
		if v.Engine != engine || v.Deprecated || want != "" && v.Version != want {
			continue
		}
		for _, name := range classNames() {
			k := dbClasses[name]
			if !k.offeredIn(c.region, v) || in.DBInstanceClass != nil && *in.DBInstanceClass != name {
				continue
			}
			for _, st := range dbStorages {
				if st.Type != "standard" || strings.HasPrefix(k.Family, "t") {
					all = append(all, orderable(c.region, v, k, st))
				}
			}
		}
	}
	page, next, err := rdsPage(c, all, in.Marker, in.MaxRecords)
	return &rds.DescribeOrderableDBInstanceOptionsOutput{OrderableDBInstanceOptions: page, Marker: next}, err
}

func orderable(region string, v dbVersion, k dbClass, st dbStorage) types.OrderableDBInstanceOption {
	out := types.OrderableDBInstanceOption{Engine: &v.Engine, EngineVersion: &v.Version, DBInstanceClass: &k.Name, LicenseModel: new(dbLicenses[v.Engine]), AvailabilityZones: []types.AvailabilityZone{},
		MultiAZCapable: new(true), ReadReplicaCapable: new(true), Vpc: new(true), SupportsStorageEncryption: new(true), StorageType: new(st.Type), SupportsIops: new(st.MinIops > 0),
		SupportsStorageThroughput: new(st.MinThroughput > 0), SupportsEnhancedMonitoring: new(true), SupportsIAMDatabaseAuthentication: new(true), SupportsPerformanceInsights: new(k.insights(v.Engine)),
		MinStorageSize: new(st.Min), MaxStorageSize: new(st.Max), SupportsStorageAutoscaling: new(true), SupportsKerberosAuthentication: new(true), OutpostCapable: new(false),
		SupportsGlobalDatabases: new(false), SupportsClusters: new(false), SupportedNetworkTypes: []string{"DUAL", "IPV4"}, AvailableProcessorFeatures: []types.AvailableProcessorFeature{},
		SupportedEngineModes: []string{}, SupportsDedicatedLogVolume: new(st.Type == "io1" || st.Type == "io2")}
	for _, z := range zonesOf(region) {
		if z.Name == "us-east-1e" && !strings.HasPrefix(k.Family, "t3") && !strings.HasSuffix(k.Family, "6i") {
			continue // an old zone has only older families, as for instances of EC2
		}
		out.AvailabilityZones = append(out.AvailabilityZones, types.AvailabilityZone{Name: new(z.Name)})
	}
	if st.MinIops > 0 {
		out.MinIopsPerDbInstance, out.MaxIopsPerDbInstance = new(st.MinIops), new(st.MaxIops)
	}
	if st.MinThroughput > 0 {
		out.MinStorageThroughputPerDbInstance, out.MaxStorageThroughputPerDbInstance = new(st.MinThroughput), new(st.MaxThroughput)
	}
	return out
}

func (s *rdsService) describeCertificates(c *reqCtx, in *rds.DescribeCertificatesInput) (*rds.DescribeCertificatesOutput, error) {
	all := []types.Certificate{}
	for _, id := range sortedKeys(dbCAs) {
		if in.CertificateIdentifier != nil && *in.CertificateIdentifier != id {
			continue
		}
		all = append(all, types.Certificate{CertificateIdentifier: &id, CertificateType: new("CA"), Thumbprint: new("2fa77ef894d983ba9d37ad699c840ab0f6a16494"), ValidFrom: new(time.Date(2021, 5, 25, 22, 0, 0, 0, time.UTC)),
			ValidTill: new(dbCAs[id]), CertificateArn: new(arn("rds", c.region, "", "cert:"+id)), CustomerOverride: new(false)})
	}
	if in.CertificateIdentifier != nil && len(all) == 0 {
		return nil, fail(404, "CertificateNotFound", "Certificate not found: %s", *in.CertificateIdentifier)
	}
	page, next, err := rdsPage(c, all, in.Marker, in.MaxRecords)
	return &rds.DescribeCertificatesOutput{Certificates: page, DefaultCertificateForNewLaunches: new(defaultCA), Marker: next}, err
}

func (s *rdsService) describeAccountAttributes(c *reqCtx, _ *rds.DescribeAccountAttributesInput) (*rds.DescribeAccountAttributesOutput, error) {
	sc := s.in(c.scope())
	used := map[string]int{"DBInstances": len(sc.Instances), "DBSubnetGroups": len(sc.SubnetGroups), "AllocatedStorage": 0, "ManualSnapshots": 0, "DBParameterGroups": 0}
	for _, i := range sc.Instances {
		used["AllocatedStorage"] += int(deref(i.DB.AllocatedStorage))
	}
	for _, n := range sc.Snapshots {
		if deref(n.Snapshot.SnapshotType) == "manual" {
			used["ManualSnapshots"]++
		}
	}
	for _, g := range sc.Parameters {
		if !g.Default {
			used["DBParameterGroups"]++
		}
	}
	out := &rds.DescribeAccountAttributesOutput{AccountQuotas: []types.AccountQuota{}}
	for _, q := range []struct{ name, code string }{{"DBInstances", quotaDBInstances}, {"AllocatedStorage", quotaDBStorage}, {"DBParameterGroups", quotaDBParameters},
		{"ManualSnapshots", quotaDBSnapshots}, {"DBSubnetGroups", quotaDBSubnets}, {"ReadReplicasPerMaster", quotaDBReplicas}} {
		out.AccountQuotas = append(out.AccountQuotas, types.AccountQuota{AccountQuotaName: new(q.name), Used: new(int64(used[q.name])), Max: new(int64(s.cloud.quota(c.scope(), "rds", q.code)))})
	}
	return out, nil
}

func (s *rdsService) describeMaintenance(_ *reqCtx, _ *rds.DescribePendingMaintenanceActionsInput) (*rds.DescribePendingMaintenanceActionsOutput, error) {
	return &rds.DescribePendingMaintenanceActionsOutput{PendingMaintenanceActions: []types.ResourcePendingMaintenanceActions{}}, nil
}
