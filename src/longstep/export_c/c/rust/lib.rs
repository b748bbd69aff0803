//! A solver for: minimise ${form}, with ${n} unknowns and ${m} constraints.
//!
//! Written by longstep ${version} around the C code of the folder above. A `Solver` owns its workspace, the only memory that
//! is allocated; a solve allocates nothing. Everything is in the order and the units of the user's problem.
#![no_std]
#![allow(non_snake_case)]

extern crate alloc;

use alloc::boxed::Box;
use core::ffi::{c_int, c_void};

/// What the code computes in.
pub type Real = ${real};

/// Entries of `Solution::x`.
pub const UNKNOWNS: usize = ${n};
/// Entries of `Solution::y` and `Solution::s` that mean something.
pub const CONSTRAINTS: usize = ${m};
/// Entries of all parameters together.
pub const PARAMETERS: usize = ${size};

/// The parameters of one instance.
#[repr(C)]
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
${fields}
}

// `as_slice` relies on it: numbers of one type, one after the other.
const _: () = assert!(core::mem::size_of::<Parameters>() == PARAMETERS * core::mem::size_of::<Real>());

impl Parameters {
    /// Parameters that are all zero.
    pub const ZERO: Parameters = Parameters {
${zeros}
    };

    /// All entries, one after the other, as the C code takes them.
    pub fn as_slice(&self) -> &[Real] {
        // SAFETY: the struct is repr(C), has PARAMETERS numbers of type Real and nothing else.
        unsafe { core::slice::from_raw_parts((self as *const Parameters).cast::<Real>(), PARAMETERS) }
    }

    /// The same, to be written to.
    pub fn as_mut_slice(&mut self) -> &mut [Real] {
        // SAFETY: as above, and every value of Real is allowed.
        unsafe { core::slice::from_raw_parts_mut((self as *mut Parameters).cast::<Real>(), PARAMETERS) }
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters::ZERO
    }
}

/// Where variables lie in `Solution::x`, by name: `&solution.x[variables::NAME]`.
pub mod variables {
${variables}}

/// How a solve ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Residuals and gap are within the tolerances.
    Solved,
    /// `max_iter` (or `steps`) came first; the best point checked (with `steps` the last).
    IterationLimit,
    /// The caller stopped before `max_iter`; the best point checked.
    TimeLimit,
    /// No point satisfies the constraints.
    PrimalInfeasible,
    /// The objective is unbounded below.
    DualInfeasible,
    /// The iterates stopped being finite; the best point checked.
    NumericalFailure,
    /// A parameter is not finite, bounds cross, or a setting is out of range. There is no point.
    BadInput,
    /// Tolerances that this precision cannot reach. There is no point.
    BadTolerance,
}

impl Status {
    fn from_code(code: c_int) -> Status {
        match code {
            1 => Status::Solved,
            2 => Status::IterationLimit,
            3 => Status::TimeLimit,
            4 => Status::PrimalInfeasible,
            5 => Status::DualInfeasible,
            7 => Status::BadInput,
            8 => Status::BadTolerance,
            _ => Status::NumericalFailure,
        }
    }
}

/// When to stop. `Settings::default()` has those of the Python solver.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Tolerance of residuals and gap, in the user's units: residual ≤ eps_abs + eps_rel · (its scale).
    pub eps_abs: Real,
    /// See `eps_abs`.
    pub eps_rel: Real,
    /// Tolerance of certificates of infeasibility.
    pub eps_infeasible: Real,
    /// At most so many steps.
    pub max_iter: i32,
    /// Steps between two checks.
    pub check_every: i32,
    /// −1, or exactly so many steps and no check on the way: the same work always.
    pub steps: i32,
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Settings {
            eps_abs: 0.0,
            eps_rel: 0.0,
            eps_infeasible: 0.0,
            max_iter: 0,
            check_every: 0,
            steps: 0,
        };
        // SAFETY: the struct has the layout of ${prefix}_settings.
        unsafe { ${prefix}_defaults(&mut settings) };
        settings
    }
}

/// What a solve gives.
#[repr(C)]
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The unknowns.
    pub x: [Real; UNKNOWNS],
    /// The multipliers of the constraints.
    pub y: [Real; ${rows}],
    /// The value Ax of the constraints (QP) or their slack (cones).
    pub s: [Real; ${rows}],
    /// The user's own, constants included.
    pub objective: Real,
    /// The largest entry of the primal residual.
    pub primal_residual: Real,
    /// The largest entry of the dual residual.
    pub dual_residual: Real,
    status: i32,
    /// Steps taken.
    pub iterations: i32,
    /// 1 where learned steps failed and safe ones took over.
    pub safeguarded: i32,
    /// 1 where the parameter lies outside what training saw.
    pub outside: i32,
${changes}}

impl Solution {
    /// All zero, to be filled by a solve.
    pub const ZERO: Solution = Solution {
        x: [0.0; UNKNOWNS],
        y: [0.0; ${rows}],
        s: [0.0; ${rows}],
        objective: 0.0,
        primal_residual: 0.0,
        dual_residual: 0.0,
        status: 0,
        iterations: 0,
        safeguarded: 0,
        outside: 0,
${no_changes}    };
}

impl Default for Solution {
    fn default() -> Self {
        Solution::ZERO
    }
}

#[repr(C)]
struct Start {
    x: *const Real,
    y: *const Real,
    s: *const Real,
}

extern "C" {
    fn ${prefix}_defaults(settings: *mut Settings);
    fn ${prefix}_solve_from(
        work: *mut c_void,
        settings: *const Settings,
        parameter: *const Real,
        start: *const Start,
        result: *mut Solution,
    ) -> c_int;
    fn ${prefix}_workspace_bytes() -> usize;
    fn ${prefix}_result_bytes() -> usize;
}

/// A cache line of the workspace.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// A workspace with its settings; one for each solve that runs at the same time.
pub struct Solver {
    /// When to stop.
    pub settings: Settings,
    work: Box<[Line]>,
}

impl Solver {
    /// A solver with the default settings.
    pub fn new() -> Solver {
        // SAFETY: both functions return constants.
        let (workspace, result) = unsafe { (${prefix}_workspace_bytes(), ${prefix}_result_bytes()) };
        assert_eq!(result, core::mem::size_of::<Solution>(), "the crate was written for other C code");
        let lines = workspace.div_ceil(core::mem::size_of::<Line>());
        let work = alloc::vec![Line([0; 64]); lines].into_boxed_slice();
        Solver { settings: Settings::default(), work }
    }

    /// Solve one instance from a zero start, and write what was found to `solution`.
    pub fn solve(&mut self, parameters: &Parameters, solution: &mut Solution) -> Status {
        self.call(parameters, core::ptr::null(), solution)
    }

    /// The same from an earlier solution, such as the last one of a control loop.
    pub fn solve_from(&mut self, parameters: &Parameters, start: &Solution, solution: &mut Solution) -> Status {
        let start = Start { x: start.x.as_ptr(), y: start.y.as_ptr(), s: start.s.as_ptr() };
        self.call(parameters, &start, solution)
    }

    fn call(&mut self, parameters: &Parameters, start: *const Start, solution: &mut Solution) -> Status {
        // SAFETY: the workspace is as large as the C code says and ours alone, `start` is null or points to arrays of
        // the lengths that the C code reads, and Solution has the size and layout of its result.
        let code = unsafe {
            ${prefix}_solve_from(
                self.work.as_mut_ptr().cast::<c_void>(),
                &self.settings,
                parameters.as_slice().as_ptr(),
                start,
                solution,
            )
        };
        Status::from_code(code)
    }
}

impl Default for Solver {
    fn default() -> Self {
        Solver::new()
    }
}
