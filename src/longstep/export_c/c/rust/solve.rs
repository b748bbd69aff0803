//! Solves one instance: `cargo run --release --example solve -- [FILE [STEPS]]`, with the entries of the parameters in
//! FILE, separated by white space; without it they are zero. STEPS asks for exactly so many steps.
use ${prefix}_solver::{Parameters, Solution, Solver};

fn main() {
    let mut given = std::env::args().skip(1);
    let mut parameters = Parameters::ZERO;
    if let Some(path) = given.next() {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
        let mut words = text.split_whitespace();
        for (i, entry) in parameters.as_mut_slice().iter_mut().enumerate() {
            let word = words.next().unwrap_or_else(|| panic!("{path}: entry {i} is missing"));
            *entry = word.parse().unwrap_or_else(|_| panic!("{path}: entry {i}, {word:?}, is no number"));
        }
    }
    let mut solver = Solver::new();
    if let Some(steps) = given.next() {
        solver.settings.steps = steps.parse().expect("STEPS must be a whole number");
    }
    let mut solution = Solution::ZERO;
    let status = solver.solve(&parameters, &mut solution);
    println!("{status:?} after {} steps, objective {:?}", solution.iterations, solution.objective);
    for value in solution.x {
        println!("{value:?}");
    }
}
