package cli

import "testing"

func TestStays(t *testing.T) {
	t.Parallel()
	kept := []string{"projects/p/backups/b1", "shop-final", "vol-1"}
	for name, want := range map[string]bool{
		"gcp/sqladmin/p/us-central1/sql-backup/projects/p/backups/b1":                 true,
		"aws/rds/1/us-east-1/db-snapshot/arn:aws:rds:us-east-1:1:snapshot:shop-final": true,
		"volume vol-1": true,
		"aws/rds/1/us-east-1/db-snapshot/arn:aws:rds:us-east-1:1:snapshot:other-shop-final": false,
		"aws/ec2/1/us-east-1/volume/vol-11":                                                 false,
	} {
		if stays(name, kept) != want {
			t.Errorf("%s stays: %v", name, !want)
		}
	}
}
