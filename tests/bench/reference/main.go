// Allocation as the reference plugin does it, in the fewest words: for comparison in `make bench`, standard library only.
//
// Reads jobs as JSON from standard input, a line each, and answers with a line each:
//
//	{"kind": "greedy", "policy": "packed", "devices": [...], "available": [...], "size": 4, "repeat": 50} → {"ns": [...]}
//	{"kind": "aligned", "scores": [[...]], "size": 4, "repeat": 1} → {"ns": [...], "score": 1234}
//	{"kind": "optimum", "scores": [[...]]} → {"optima": [0, best of size 1, best of size 2, ...]}
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"sort"
	"strings"
	"sync"
	"time"
)

type job struct {
	Kind      string   `json:"kind"`
	Policy    string   `json:"policy"`
	Devices   []string `json:"devices"`
	Available []string `json:"available"`
	Scores    [][]int  `json:"scores"`
	Size      int      `json:"size"`
	Repeat    int      `json:"repeat"`
}

type answer struct {
	Nanoseconds []int64 `json:"ns,omitempty"`
	Score       int     `json:"score,omitempty"`
	Optima      []int   `json:"optima,omitempty"`
	Chosen      int     `json:"chosen,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var it job
		if err := json.Unmarshal(lines.Bytes(), &it); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		out, _ := json.Marshal(run(it))
		fmt.Println(string(out))
	}
}

func run(it job) answer {
	var out answer
	switch it.Kind {
	case "greedy":
		devices := map[string]bool{}
		for _, id := range it.Devices {
			devices[id] = true
		}
		for i := 0; i < it.Repeat; i++ {
			started := time.Now()
			out.Chosen = len(greedy(devices, it.Available, it.Size, it.Policy == "packed"))
			out.Nanoseconds = append(out.Nanoseconds, time.Since(started).Nanoseconds())
		}
	case "aligned":
		for i := 0; i < it.Repeat; i++ {
			started := time.Now()
			out.Score = aligned(it.Scores, it.Size)
			out.Nanoseconds = append(out.Nanoseconds, time.Since(started).Nanoseconds())
		}
	case "optimum":
		out.Optima = make([]int, len(it.Scores)+1)
		points := pointsOfSets(it.Scores)
		var sizes sync.WaitGroup
		for size := 1; size <= len(it.Scores); size++ {
			sizes.Add(1)
			go func() {
				defer sizes.Done()
				out.Optima[size] = optimum(points, len(it.Scores), size)
			}()
		}
		sizes.Wait()
	}
	return out
}

// greedy picks one id at a time: all candidates are sorted by how much is allocated on their board, then by how much was
// picked there (contract 5.3).
func greedy(devices map[string]bool, available []string, size int, packed bool) []string {
	type board struct{ total, available, picked int }
	boards := map[string]*board{}
	var candidates []string
	for _, id := range available {
		if devices[id] {
			candidates = append(candidates, id)
			base, _, _ := strings.Cut(id, "::")
			if boards[base] == nil {
				boards[base] = &board{}
			}
			boards[base].available++
		}
	}
	if len(candidates) < size {
		return nil
	}
	for id := range devices {
		base, _, _ := strings.Cut(id, "::")
		if boards[base] != nil {
			boards[base].total++
		}
	}
	var chosen []string
	for len(chosen) < size {
		sort.Slice(candidates, func(i, j int) bool {
			one, _, _ := strings.Cut(candidates[i], "::")
			other, _, _ := strings.Cut(candidates[j], "::")
			a, b := boards[one], boards[other]
			allocatedA, allocatedB := a.total-a.available, b.total-b.available
			if allocatedA != allocatedB {
				return (allocatedA < allocatedB) != packed
			}
			return a.picked < b.picked
		})
		id := candidates[0]
		base, _, _ := strings.Cut(id, "::")
		boards[base].available--
		boards[base].picked++
		chosen, candidates = append(chosen, id), candidates[1:]
	}
	return chosen
}

// aligned enumerates every partition of the boards into sets of the size, filled up with empty slots (contract 5.4).
func aligned(scores [][]int, size int) int {
	boards := make([]int, 0, len(scores)+size)
	for board := range scores {
		boards = append(boards, board)
	}
	for len(boards)%size != 0 {
		boards = append(boards, -1)
	}
	best := -1
	partitions(boards, size, nil, func(sets [][]int) {
		total := 0
		for _, set := range sets {
			for i, one := range set {
				for _, other := range set[:i] {
					if one >= 0 && other >= 0 {
						total += scores[one][other]
					}
				}
			}
		}
		if total > best {
			best = total
		}
	})
	return best
}

func partitions(boards []int, size int, sets [][]int, visit func([][]int)) {
	if len(boards) == 0 {
		visit(sets)
		return
	}
	padding := 0
	for _, board := range boards {
		if board < 0 {
			padding++
		}
	}
	var choose func(from int, set []int)
	choose = func(from int, set []int) {
		if len(set) == size {
			slots := 0
			taken := map[int]bool{}
			for _, at := range set {
				taken[at] = true
				if boards[at] < 0 {
					slots++
				}
			}
			if slots != 0 && slots != padding {
				return
			}
			var members, rest []int
			for at, board := range boards {
				if taken[at] {
					members = append(members, board)
				} else {
					rest = append(rest, board)
				}
			}
			partitions(rest, size, append(sets, members), visit)
			return
		}
		for at := from; at < len(boards); at++ {
			choose(at+1, append(append([]int{}, set...), at))
		}
	}
	choose(1, []int{0})
}

func pointsOfSets(scores [][]int) []int {
	points := make([]int, 1<<len(scores))
	for set := 1; set < len(points); set++ {
		high := bits.Len(uint(set)) - 1
		rest := set &^ (1 << high)
		points[set] = points[rest]
		for left := rest; left != 0; left &= left - 1 {
			points[set] += scores[high][bits.TrailingZeros(uint(left))]
		}
	}
	return points
}

// optimum is the best total of any partition, by dynamic programming over the boards that are left.
func optimum(points []int, boards, size int) int {
	known := make([]int, 1<<boards)
	for left := range known {
		known[left] = -1
	}
	known[0] = 0
	var best func(left int) int
	best = func(left int) int {
		if known[left] >= 0 {
			return known[left]
		}
		first := bits.TrailingZeros(uint(left))
		total := -1
		sizes := []int{size}
		if over := bits.OnesCount(uint(left)) % size; over != 0 {
			sizes = []int{size, over}
		}
		for _, wanted := range sizes {
			var choose func(rest, set, missing int)
			choose = func(rest, set, missing int) {
				if missing == 0 {
					if got := points[set] + best(left&^set); got > total {
						total = got
					}
					return
				}
				for ; rest != 0; rest &= rest - 1 {
					low := rest & -rest
					choose(rest&^low, set|low, missing-1)
				}
			}
			choose(left&^(1<<first), 1<<first, wanted-1)
		}
		known[left] = total
		return total
	}
	return best(1<<boards - 1)
}
