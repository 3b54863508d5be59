package provision

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/zopday/provisioner/internal/job"
)

// commandsFor reports whether the job is of a family that only its cloud's own
// commands change.
func commandsFor(j *job.Job) bool { return consoleCommands[j.ResourceType] != nil }

// consoleCommands is what the clouds' own command lines call a change of a
// datastore.
var consoleCommands = map[job.ResourceType]map[job.Provider]string{
	job.Datastore: {
		job.AWS:   "aws rds modify-db-instance --db-instance-identifier %s",
		job.GCP:   "gcloud sql instances patch %s",
		job.Azure: "az mysql flexible-server update --name %s",
	},
	job.Cache: {
		job.AWS:   "aws elasticache modify-replication-group --replication-group-id %s",
		job.GCP:   "gcloud redis instances update %s",
		job.Azure: "az redisenterprise update --name %s",
	},
}

// onPaper are the fields of a datastore's spec that say what this provisioner does,
// not what the datastore is.
func onPaper(path string) bool {
	return within(path, "databases") || within(path, "waive") || path == "skipFinalSnapshot"
}

// customerDatabase refuses every change of a datastore that exists, or may.
func customerDatabase(j *job.Job, r PatchRequest) error {
	commands := consoleCommands[j.ResourceType]
	d := j.Config.InfraConfig.Datastore
	if commands == nil || j.Status == job.Draft || r.Config == nil || len(r.Config.Spec) == 0 || j.Status == job.Failed && d.ID == "" && j.Owns() {
		return nil
	}
	var touched map[string]json.RawMessage
	if err := json.Unmarshal(r.Config.Spec, &touched); err != nil {
		return refuse(Malformed, "Send an object.", "config.spec is not an object")
	}
	name := cmp.Or(d.Name, j.Name)
	refusal := &Refusal{Kind: CustomerDatabase, Job: j.ID,
		Message: fmt.Sprintf("%s is a %s: the provisioner never changes its tier, class, storage, version, replicas, flags or access, even one that it created; that stays with those who run it", j.Name, j.ResourceType),
		Hint:    "Change it with the cloud's own command: " + consoleCommand(j, name)}
	for _, k := range slices.Sorted(maps.Keys(touched)) {
		if j.Owns() && onPaper(k) {
			continue
		}
		fix := "use the cloud's own command"
		if k == "access" {
			fix = "change the security group or firewall with the cloud's own tools, or make another datastore"
		}
		refusal.Fields = append(refusal.Fields, job.FieldError{Field: "config.spec." + clip(k), Message: "is not changed by the provisioner", Fix: fix})
	}
	if len(refusal.Fields) == 0 {
		return nil
	}
	return refusal
}

// consoleCommand is the cloud's own command for a change of a datastore.
func consoleCommand(j *job.Job, name string) string {
	command := fmt.Sprintf(consoleCommands[j.ResourceType][j.Provider], name)
	if j.Provider == job.GCP && engineOf(j) == job.Valkey {
		return fmt.Sprintf("gcloud memorystore instances update %s --location %s", name, j.Region)
	}
	if j.Provider != job.Azure {
		return command
	}
	if engineOf(j) == job.Postgres {
		command = "az postgres flexible-server update --name " + name
	}
	if group := cmp.Or(j.Config.InfraConfig.ResourceGroup, j.Config.InfraConfig.ExistingResourceGroup); group != "" {
		command += " --resource-group " + group
	}
	return command
}

// editDatastore lets what is only on paper change on a finished datastore job.
func editDatastore(j *job.Job, paths []string) error {
	var fields []job.FieldError
	for _, path := range paths {
		switch {
		case within(path, "databases"):
			fields = append(fields, job.FieldError{Field: "config.spec." + path, Message: "is what was made at first", Fix: "use POST and DELETE /provisioning-jobs/" + j.ID + "/databases"})
		case !onPaper(path):
			fields = append(fields, job.FieldError{Field: "config.spec." + path, Message: "is not changed by the provisioner", Fix: "use the cloud's own command: " + consoleCommand(j, cmp.Or(j.Config.InfraConfig.Datastore.Name, j.Name))})
		}
	}
	if len(fields) > 0 {
		return invalid(fields...)
	}
	return nil
}
