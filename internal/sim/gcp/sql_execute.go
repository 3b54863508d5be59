package gcp

import (
	"regexp"
	"strconv"
	"strings"
)

// mostRows is how many rows of one statement executeSql answers ("Execute SQL statements with the Cloud SQL Data API": 10 MB and 30 seconds
// at most; the number is the simulation's).
const mostRows = 10000

// executeSQL runs statements on the server behind an instance, as a user whose password is in Secret Manager, or as the caller's user of
// IAM. What the database says against them is in the answer's status.
func (s *cloudSQL) executeSQL(r *request) (any, error) {
	in, err := s.running(r)
	if err != nil {
		return nil, err
	}
	body := r.Body
	switch {
	case str(in.settings(), "dataApiAccess") != "ALLOW_DATA_API":
		return nil, &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION",
			Message: "The Data API is not enabled for instance " + in.name() + ". Set settings.dataApiAccess to ALLOW_DATA_API."}
	case strings.TrimSpace(str(body, "sqlStatement")) == "":
		return nil, sqlInvalid("Missing parameter: sqlStatement.")
	case str(body, "database") == "" && in.postgres():
		return nil, sqlInvalid("Missing parameter: database.")
	}
	user, password, err := s.login(r, in)
	if err != nil {
		return nil, err
	}
	if !s.answers(in) {
		return nil, &Error{HTTP: 503, Reason: "backendError", Status: "UNAVAILABLE", Message: "The instance " + in.name() + " does not answer: there is no database server behind it."}
	}
	columns, rows, err := s.query(in, orText(str(body, "database"), in.firstDatabase()), user, password, str(body, "sqlStatement"))
	if answer := saidAgainst(err); answer != nil {
		return answer, nil
	}
	limit := mostRows
	if n, err := strconv.Atoi(str(body, "rowLimit")); err == nil && n > 0 {
		limit = min(n, limit)
	}
	partial := len(rows) > limit
	if partial && str(body, "partialResultMode") != "ALLOW_PARTIAL_RESULT" {
		return nil, sqlInvalid("The result has more than %d rows.", limit)
	}
	return Doc{"results": []any{result(columns, rows[:min(limit, len(rows))], partial)}, "metadata": Doc{"sqlStatementExecutionTime": "0.004s"}}, nil
}

// saidAgainst is the answer when the database refuses a statement.
func saidAgainst(err error) Doc {
	if err == nil {
		return nil
	}
	return Doc{"status": Doc{"code": rpcInvalidArgument, "message": err.Error()}, "metadata": Doc{"sqlStatementExecutionTime": "0.004s"}}
}

// changing are words by which a query changes something after all.
var changing = regexp.MustCompile(`(?i)\b(into|pg_terminate_backend|pg_cancel_backend|set_config|setval|nextval|insert|update|delete|for\s+update)\b`)

// onlyQueries says whether a call of executeSql runs queries alone.
func onlyQueries(r *request) bool {
	if r.method.ID != "instances.executeSql" {
		return false
	}
	for s := range strings.SplitSeq(strings.Trim(str(r.Body, "sqlStatement"), "; \t\n"), ";") {
		word, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(s)), " ")
		if (word != "SELECT" && word != "SHOW" && !strings.EqualFold(strings.TrimSpace(s), "set search_path to pg_catalog")) || changing.MatchString(s) {
			return false
		}
	}
	return true
}

func result(columns []string, rows [][]string, partial bool) Doc {
	out := Doc{"columns": []any{}, "rows": []any{}}
	var cols, shown []any
	for _, c := range columns {
		cols = append(cols, Doc{"name": c, "type": "TEXT"})
	}
	for _, row := range rows {
		var values []any
		for _, v := range row {
			values = append(values, Doc{"value": v})
		}
		shown = append(shown, Doc{"values": values})
	}
	if len(cols) > 0 {
		out["columns"] = cols
	}
	if len(shown) > 0 {
		out["rows"] = shown
	}
	if partial {
		out["partialResult"] = true
	}
	return out
}

// login says as whom statements run.
func (s *cloudSQL) login(r *request, in *sqlInstance) (user, password string, err error) {
	if truth(r.Body, "autoIamAuthn") {
		u := in.iamUserOf(r.Who.Email)
		if u == nil {
			return "", "", &Error{HTTP: 403, Reason: "forbidden", Status: "PERMISSION_DENIED", Message: "The caller " + r.Who.Email + " is not an IAM user of instance " + in.name() + "."}
		}
		return str(u.Doc, "name"), u.Password, nil
	}
	user = str(r.Body, "user")
	version := str(r.Body, "passwordSecretVersion")
	switch {
	case user == "":
		return "", "", sqlInvalid("Missing parameter: user.")
	case version == "":
		return "", "", sqlInvalid("Missing parameter: passwordSecretVersion.")
	case segmentAfter(version, "locations") == "":
		return "", "", sqlInvalid("The secret of %s must be a regional one: projects/{project}/locations/{location}/secrets/{secret}/versions/{version}.", version)
	case segmentAfter(version, "locations") != in.region():
		return "", "", sqlInvalid("The secret of %s must be in the instance's region %s.", version, in.region())
	}
	payload, err := s.cloud.secrets.payload(r, version)
	return user, string(payload), err
}

// iamUserOf finds the user of IAM that a caller is.
func (in *sqlInstance) iamUserOf(email string) *sqlUser {
	for _, u := range in.Users {
		if str(u.Doc, "type") == "" {
			continue
		}
		if str(u.Doc, "name") == strings.TrimSuffix(email, ".gserviceaccount.com") || str(u.Doc, "iamEmail") == email {
			return u
		}
	}
	return nil
}
