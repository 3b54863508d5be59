package kube

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/pipeline"
)

// ownerLabel says whose a Secret is: the ID of the connection that it belongs to.
const ownerLabel = "zopday.io/connection"

// A Secret is what a connection keeps in a space.
type Secret struct {
	Namespace, Name string
	Owner           string            // the connection's ID
	Data            map[string]string // never logged
}

// EnsureSecret makes a Secret, and its namespace if there is none, or brings it up
// to date. One of that name that is not the owner's is somebody else's: it is not
// touched.
func EnsureSecret(ctx context.Context, access cloud.KubeAccess, s Secret) error {
	c, err := Client(ctx, access)
	if err != nil {
		return err
	}
	data := make(map[string][]byte, len(s.Data))
	for k, v := range s.Data {
		data[k] = []byte(v)
	}
	api := c.CoreV1().Secrets(s.Namespace)
	have, err := api.Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if err := ensureNamespace(ctx, c, s.Namespace); err != nil {
			return err
		}
		_, err = api.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: map[string]string{ownerLabel: s.Owner, "app.kubernetes.io/managed-by": "zopday"}},
			Type:       corev1.SecretTypeOpaque, Data: data,
		}, metav1.CreateOptions{})
		return Classify("create secret", err)
	case err != nil:
		return Classify("get secret", err)
	case have.Labels[ownerLabel] != s.Owner:
		return secretTaken(s.Namespace, s.Name)
	case maps.EqualFunc(have.Data, data, func(a, b []byte) bool { return string(a) == string(b) }):
		return nil
	}
	have.Data = data
	_, err = api.Update(ctx, have, metav1.UpdateOptions{})
	return Classify("update secret", err)
}

// CheckSecret says whether a Secret could be made or brought up to date: the cluster
// answers, and there is none of that name, or it is the owner's.
func CheckSecret(ctx context.Context, access cloud.KubeAccess, namespace, name, owner string) error {
	c, err := Client(ctx, access)
	if err != nil {
		return err
	}
	have, err := c.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return Classify("get secret", err)
	case have.Labels[ownerLabel] != owner:
		return secretTaken(namespace, name)
	}
	return nil
}

func secretTaken(namespace, name string) error {
	return pipeline.Fatal("name-taken", fmt.Sprintf("the namespace %s has a Secret %s already, which is not this connection's, so it was not touched", namespace, name),
		"Give the connection another secretName, or remove that Secret, then ask for the connection again.").On("secretName")
}

func ensureNamespace(ctx context.Context, c Interface, name string) error {
	_, err := c.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return Classify("get namespace", err)
	}
	_, err = c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return Classify("create namespace", err)
}

// RemoveSecret removes a Secret that is the owner's; one that is gone, or somebody
// else's by now, is left as it is.
func RemoveSecret(ctx context.Context, access cloud.KubeAccess, namespace, name, owner string) error {
	c, err := Client(ctx, access)
	if err != nil {
		return err
	}
	api := c.CoreV1().Secrets(namespace)
	have, err := api.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return Classify("get secret", err)
	case have.Labels[ownerLabel] != owner:
		return nil
	}
	err = api.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return Classify("delete secret", err)
}
