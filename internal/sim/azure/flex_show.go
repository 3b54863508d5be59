package azure

import (
	"net/http"
)

// minorVersions are the minor versions that new servers of PostgreSQL get, by major.
var minorVersions = map[string]string{"11": "22", "12": "22", "13": "23", "14": "20", "15": "15", "16": "11", "17": "7", "18": "1"}

// showServer completes what a GET of a flexible server answers, as its api-version has it.
func (c *Cloud) showServer(r *request, res *Resource, body doc) {
	e := flexOf(res.Type)
	p := body.sub("properties")
	delete(p, "provisioningState")
	delete(p, "sourceServerResourceId")
	p["state"] = res.State
	p["fullyQualifiedDomainName"] = hostPort(c.databases.endpoint(res.ID), e.port)
	body["location"] = displayLocation(res.Location)
	c.showHA(e, res, p.sub("highAvailability"))
	if e == flexPostgres {
		c.showPostgres(r, res, p)
		if r.version >= "2024" {
			body["systemData"] = map[string]any{"createdAt": stamp(res.Created)}
		}
		return
	}
	c.showMySQL(r, res, p)
	c.showIdentity(body.sub("identity"))
	body["systemData"] = map[string]any{"createdAt": stamp(res.Created)}
}

// showIdentity completes the identities of a server.
func (c *Cloud) showIdentity(identity doc) {
	if identity == nil {
		return
	}
	identity.def("principalId", "00000000-0000-0000-0000-000000000000")
	identity.def("tenantId", c.opt.Tenant)
	given := identity.sub("userAssignedIdentities")
	for id := range given {
		shown := doc{"principalId": "", "tenantId": c.opt.Tenant}
		if res := c.find(id); res != nil {
			shown["principalId"] = res.Properties.str("principalId")
		}
		given[id] = map[string]any(shown)
	}
}

func (c *Cloud) showHA(e *flexEngine, res *Resource, ha doc) {
	state := "Healthy"
	switch {
	case ha.str("mode") == "Disabled":
		state = "NotEnabled"
		if e == flexMySQL {
			ha["standbyAvailabilityZone"] = ""
		}
	case res.busy():
		state = "CreatingStandby"
	}
	if res.State == serverStopped && state == "Healthy" {
		state = map[bool]string{true: "Healthy", false: "NotEnabled"}[e == flexPostgres]
	}
	ha["state"] = state
}

func (c *Cloud) showPostgres(r *request, res *Resource, p doc) {
	p["minorVersion"] = minorVersions[p.str("version")]
	if r.version < "2022" {
		for _, name := range []string{"authConfig", "replicationRole", "dataEncryption"} {
			delete(p, name)
		}
		p["storage"] = map[string]any{"storageSizeGB": p.get("storage.storageSizeGB")}
		return
	}
	p["privateEndpointConnections"] = c.connectionsTo(res.ID)
	p["replicaCapacity"] = flexPostgres.replicaLimit() - len(c.replicasOf(res))
	if auth := p.sub("authConfig"); auth != nil {
		auth.def("tenantId", "")
	}
	p["replica"] = map[string]any{"role": p.str("replicationRole"), "capacity": p["replicaCapacity"]}
}

func (c *Cloud) showMySQL(r *request, res *Resource, p doc) {
	delete(p, "dataEncryption")
	if enc := res.Properties.sub("dataEncryption"); enc.str("type") == "AzureKeyVault" {
		p["dataEncryption"] = map[string]any(enc)
	}
	p["replicaCapacity"] = flexMySQL.replicaLimit() - len(c.replicasOf(res))
	storage := p.sub("storage")
	if r.version < "2023" {
		delete(storage, "autoIoScaling")
		delete(storage, "logOnDisk")
		return
	}
	p["privateEndpointConnections"] = c.connectionsTo(res.ID)
	if r.version < "2023-12" {
		return
	}
	p["databasePort"] = c.databases.endpoint(res.ID).Port
	p["fullVersion"] = map[string]string{"5.7": "5.7.44", "8.0.21": "8.0.44", "8.4": "8.4.6"}[p.str("version")]
	p.sub("backup").def("backupIntervalHours", 24)
	storage.def("storageRedundancy", "LocalRedundancy")
	p.sub("maintenanceWindow").def("batchOfMaintenance", "Default")
	p["maintenancePolicy"] = map[string]any{"patchStrategy": "Regular"}
}

// readOnlyRefusal refuses to write in a server that only follows another one.
func readOnlyRefusal(server *Resource) *Error {
	return refuse(http.StatusConflict, "ReadOnlyServer", "The operation is not allowed on server '%s': it is a read replica.", server.Name)
}
