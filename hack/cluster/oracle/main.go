// Command oracle runs the kubelet's own device manager, and nothing else of the kubelet, on a folder.
//
//	oracle FOLDER
//
// It needs no root and no cluster. Commands are JSON lines on standard input, each answered by one line:
//
//	{"do": "admit", "pod": "a", "containers": [{"name": "main", "kind": "app", "limits": {"nvidia.com/gpu": 2}}]}
//	{"do": "delete", "pod": "a"}
//	{"do": "list"}                        capacity, allocatable, names that were removed
//	{"do": "age", "seconds": 301}         moves the end of every stopped endpoint into the past
//
// A restart is the end of the process and a new one on the same folder; `"active"` names the pods that still run.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"time"
	"unsafe"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
)

// The exported constructor knows only the folder of a real node.
//
//go:linkname newManagerImpl k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newManagerImpl(string, []cadvisorapi.Node, topologymanager.Store) (*devicemanager.ManagerImpl, error)

type container struct {
	Name   string           `json:"name"`
	Kind   string           `json:"kind"`
	Limits map[string]int64 `json:"limits"`
}

type command struct {
	Do         string      `json:"do"`
	Pod        string      `json:"pod"`
	Containers []container `json:"containers"`
	Seconds    int64       `json:"seconds"`
	Active     []string    `json:"active"`
}

type answer struct {
	IDs         map[string][]string          `json:"ids,omitempty"`
	Envs        map[string]map[string]string `json:"envs,omitempty"`
	Capacity    map[string]int64             `json:"capacity,omitempty"`
	Allocatable map[string]int64             `json:"allocatable,omitempty"`
	Removed     []string                     `json:"removed,omitempty"`
	Error       string                       `json:"error,omitempty"`
}

type oracle struct {
	manager *devicemanager.ManagerImpl
	active  map[string]*v1.Pod
}

func main() {
	oracle := &oracle{active: map[string]*v1.Pod{}}
	if err := oracle.start(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	_ = out.Encode(answer{})
	for lines.Scan() {
		var asked command
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			_ = out.Encode(answer{Error: err.Error()})
			continue
		}
		_ = out.Encode(oracle.obey(asked))
	}
}

func (o *oracle) start(folder string) error {
	manager, err := newManagerImpl(folder+"/kubelet.sock", nil, topologymanager.NewFakeManager())
	if err != nil {
		return err
	}
	o.manager = manager
	active := func() []*v1.Pod {
		pods := make([]*v1.Pod, 0, len(o.active))
		for _, pod := range o.active {
			pods = append(pods, pod)
		}
		return pods
	}
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	return manager.Start(active, ready, containermap.NewContainerMap(), sets.New[string]())
}

func (o *oracle) obey(asked command) answer {
	switch asked.Do {
	case "admit":
		return o.admit(podOf(asked))
	case "delete":
		delete(o.active, asked.Pod)
		o.manager.UpdateAllocatedDevices()
		return answer{}
	case "list":
		capacity, allocatable, removed := o.manager.GetCapacity()
		sort.Strings(removed)
		return answer{Capacity: numbers(capacity), Allocatable: numbers(allocatable), Removed: removed}
	case "age":
		o.age(time.Duration(asked.Seconds) * time.Second)
		return answer{}
	case "active":
		for _, name := range asked.Active {
			o.active[name] = podOf(command{Pod: name})
		}
		return answer{}
	}
	return answer{Error: "unknown command " + asked.Do}
}

func (o *oracle) admit(pod *v1.Pod) answer {
	o.active[pod.Name] = pod
	given := answer{IDs: map[string][]string{}, Envs: map[string]map[string]string{}}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for index := range containers {
			one := &containers[index]
			if err := o.manager.Allocate(pod, one); err != nil {
				// before anybody asks for the options: they allocate again for an active pod without devices
				delete(o.active, pod.Name)
				return answer{Error: err.Error()}
			}
		}
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for index := range containers {
			one := &containers[index]
			for name, devices := range o.manager.GetDevices(string(pod.UID), one.Name) {
				ids := []string{}
				for id := range devices {
					ids = append(ids, id)
				}
				sort.Strings(ids)
				given.IDs[one.Name+"/"+name] = ids
			}
			options, err := o.manager.GetDeviceRunContainerOptions(pod, one)
			if err == nil && options != nil {
				envs := map[string]string{}
				for _, env := range options.Envs {
					envs[env.Name] = env.Value
				}
				given.Envs[one.Name] = envs
			}
		}
	}
	return given
}

// age makes every endpoint that has stopped look as if it had done so earlier.
func (o *oracle) age(by time.Duration) {
	endpoints := reflect.ValueOf(o.manager).Elem().FieldByName("endpoints")
	for _, key := range endpoints.MapKeys() {
		field := endpoints.MapIndex(key).FieldByName("e").Elem().Elem().FieldByName("stopTime")
		if at := (*time.Time)(unsafe.Pointer(field.UnsafeAddr())); !at.IsZero() {
			*at = at.Add(-by)
		}
	}
}

func podOf(asked command) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: asked.Pod, UID: types.UID(asked.Pod)}}
	always := v1.ContainerRestartPolicyAlways
	for _, each := range asked.Containers {
		limits := v1.ResourceList{}
		for name, count := range each.Limits {
			limits[v1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
		}
		one := v1.Container{Name: each.Name, Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}
		switch each.Kind {
		case "app":
			pod.Spec.Containers = append(pod.Spec.Containers, one)
		case "sidecar":
			one.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, one)
		default:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, one)
		}
	}
	return pod
}

func numbers(list v1.ResourceList) map[string]int64 {
	found := map[string]int64{}
	for name, quantity := range list {
		found[string(name)] = quantity.Value()
	}
	return found
}
