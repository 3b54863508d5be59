// Package oidc signs people in with OpenID Connect, and takes the tokens of
// machines that an issuer has signed.
//
// People come by the authorisation code flow with PKCE, state and nonce ([SignIn.Begin],
// [SignIn.Finish]) and then have a session. Machines send a JSON Web Token with
// each request ([SignIn.Authenticate]). In both cases the issuers, what they are
// trusted for and the organisation that their people belong to are given by the
// operator's file ([Parse]): nothing in a token can name a key, an issuer or an
// organisation that is not there.
//
// An issuer is asked when it is first needed, so one that is down keeps nothing from
// starting. Its keys are read again when a token names one that is not known, and
// once they are ten minutes old.
package oidc
