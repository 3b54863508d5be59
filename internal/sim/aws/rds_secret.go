package aws

import "github.com/aws/aws-sdk-go-v2/service/rds/types"

// The password that RDS manages in Secrets Manager ("Password management with Amazon RDS and AWS Secrets Manager"): a secret
// whose name begins with rds!db-, which belongs to RDS and goes with the instance.

func (s *rdsService) manageSecret(c *reqCtx, i *RDSInstance, key string) {
	i.MasterPassword = c.w.ID("", 28, passwordLetters)
	keyID := s.cloud.storageKey(c.scope(), key, "secretsmanager")
	x := s.cloud.platform.sec.manage(i.scope(), "rds", "rds!db-"+c.w.UUID(), "Secret associated with primary RDS DB instance: "+i.arn(), keyID,
		[]Tag{{"aws:rds:primaryDBInstanceArn", i.arn()}, {"aws:secretsmanager:owningService", "rds"}}, map[string]string{"username": deref(i.DB.MasterUsername), "password": i.MasterPassword})
	i.DB.MasterUserSecret = &types.MasterUserSecret{SecretArn: &x.ARN, SecretStatus: new(statusCreating), KmsKeyId: &keyID}
	i.DB.PendingModifiedValues.MasterUserPassword = new(blanked)
}

// secretActive ends the creation of the secret.
func (s *rdsService) secretActive(i *RDSInstance) {
	if m := i.DB.MasterUserSecret; m != nil && deref(m.SecretStatus) == statusCreating {
		m.SecretStatus = new("active")
	}
}

// dropSecret deletes the secret of an instance, at once and for good.
func (s *rdsService) dropSecret(i *RDSInstance) {
	if i.DB.MasterUserSecret == nil {
		return
	}
	if x := s.cloud.platform.sec.byARN(deref(i.DB.MasterUserSecret.SecretArn)); x != nil {
		s.cloud.platform.sec.drop(x)
	}
}

// holder is the instance whose secret this is.
func (s *rdsService) holder(secret string) *RDSInstance {
	for _, i := range s.instances() {
		if m := i.DB.MasterUserSecret; m != nil && deref(m.SecretArn) == secret {
			return i
		}
	}
	return nil
}

// rotating notes that a rotation has begun.
func (s *rdsService) rotating(secret string) {
	if i := s.holder(secret); i != nil {
		i.DB.MasterUserSecret.SecretStatus = new("rotating")
	}
}

// rotated gives the instance the password of its secret.
func (s *rdsService) rotated(secret, password string) {
	if i := s.holder(secret); i != nil {
		i.MasterPassword = password
		i.DB.MasterUserSecret.SecretStatus = new("active")
		s.cloud.servers.sync()
	}
}
