package aws

// platform holds the services around EC2, which ask one another.
type platform struct {
	iam   *iamService
	sts   *stsService
	ssm   *ssmService
	elb   *elbService
	r53   *r53Service
	acm   *acmService
	asg   *asgService
	s3    *s3Service
	kms   *kmsService
	eks   *eksService
	log   *logsService
	sec   *secretsService
	rds   *rdsService
	cache *cacheService
}

// addPlatform makes the services around EC2.
func (c *Cloud) addPlatform() {
	c.platform = &platform{}
	c.platform.iam = newIAM(c)
	c.platform.sts = newSTS(c)
	c.platform.ssm = newSSM(c)
	newQuotas(c)
	c.platform.log = newLogs(c)
	c.platform.kms = newKMS(c)
	c.platform.s3 = newS3(c)
	c.platform.elb = newELB(c)
	c.platform.r53 = newRoute53(c)
	c.platform.acm = newACM(c)
	c.platform.asg = newAutoScaling(c)
	c.platform.eks = newEKS(c)
	c.platform.sec = newSecrets(c)
	c.platform.rds = newRDS(c)
	c.platform.cache = newCache(c)
	newMetrics(c)
}

// mainAccount is the account of requests that name none: that of the documented access key if it is configured.
func (c *Cloud) mainAccount() string {
	for _, key := range []string{"AKIAIOSFODNN7EXAMPLE", "test"} {
		if account, ok := c.opt.Keys[key]; ok {
			return account
		}
	}
	return c.accounts()[0]
}
