//! Tables of descriptions made by hand, for both architectures: what compilers and linkers write, and what nobody should.

use gimli::write::CallFrameInstruction;
use gimli::write::CallFrameInstruction::{
    Cfa as SetCfa, CfaExpression, CfaOffset, CfaRegister, Expression as At, NegateRaState, Offset,
    Register as Elsewhere, RememberState, Restore, RestoreState, Undefined,
};
use gimli::write::{
    Address, CommonInformationEntry, EhFrame, EndianVec, Expression, FrameDescriptionEntry, FrameTable,
};
use gimli::{Encoding, Format, LittleEndian, Register};
use profile_recorder_unwind::build::{Counts, OwnedTable, Section, build};
use profile_recorder_unwind::cfi::Compile;
use profile_recorder_unwind::{Rule, aarch64, x86_64};

/// Where the section lies, and from where addresses are counted.
const EH_FRAME: u64 = 0x10_0000;
const BASE: u64 = 0x1000;

type Function = (u32, u32, Vec<(u32, CallFrameInstruction)>);

/// The bytes of a section that describes functions (start and length from the base), all with the same initial instructions.
fn section(ra: u16, initial: &[CallFrameInstruction], signal: bool, functions: &[Function]) -> Vec<u8> {
    let encoding = Encoding { format: Format::Dwarf32, version: 1, address_size: 8 };
    let mut table = FrameTable::default();
    let mut cie = CommonInformationEntry::new(encoding, 1, -8, Register(ra));
    cie.signal_trampoline = signal;
    initial.iter().for_each(|instruction| cie.add_instruction(instruction.clone()));
    let cie = table.add_cie(cie);
    for (start, len, instructions) in functions {
        let mut fde = FrameDescriptionEntry::new(Address::Constant(BASE + u64::from(*start)), *len);
        for (offset, instruction) in instructions {
            fde.add_instruction(*offset, instruction.clone());
        }
        table.add_fde(cie, fde);
    }
    let mut bytes = EhFrame(EndianVec::new(LittleEndian));
    table.write_eh_frame(&mut bytes).unwrap();
    bytes.0.into_vec()
}

fn table<A: Compile>(bytes: &[u8]) -> (OwnedTable, Counts) {
    build::<A>(Section { bytes, address: EH_FRAME }, BASE)
}

mod on_x86_64 {
    use super::*;
    use x86_64::{Base, Cfa, Form, FramePointer, Registers};

    const RSP: Register = Register(7);
    const RBP: Register = Register(6);
    const RIP: Register = Register(16);

    fn initial() -> [CallFrameInstruction; 2] {
        [SetCfa(RSP, 8), Offset(RIP, -8)]
    }

    fn built(functions: &[Function]) -> (OwnedTable, Counts) {
        table::<Registers>(&section(16, &initial(), false, functions))
    }

    fn frame(cfa: Cfa, fp: FramePointer) -> Option<Rule> {
        Some(Form::Frame { cfa, fp, signal: false }.encode())
    }

    fn sp(offset: i32) -> Option<Rule> {
        frame(Cfa::Offset(Base::StackPointer, offset), FramePointer::Same)
    }

    #[test]
    fn a_function_with_a_frame_pointer_has_four_rows_and_gaps_around() {
        let (table, counts) = built(&[(
            0x100,
            0x20,
            vec![
                (1, CfaOffset(16)),
                (1, Offset(RBP, -16)),
                (4, CfaRegister(RBP)),
                (0x1e, SetCfa(RSP, 8)),
                (0x1e, Restore(RBP)),
            ],
        )]);
        let lookup = |pc| table.as_table().lookup(pc);
        assert_eq!(lookup(0xff), None);
        assert_eq!(lookup(0x100), sp(8));
        assert_eq!(lookup(0x101), frame(Cfa::Offset(Base::StackPointer, 16), FramePointer::AtCfa(-16)));
        assert_eq!(lookup(0x104), frame(Cfa::Offset(Base::FramePointer, 16), FramePointer::AtCfa(-16)));
        assert_eq!(lookup(0x11d), lookup(0x104));
        assert_eq!(lookup(0x11e), sp(8));
        assert_eq!(lookup(0x11f), sp(8));
        assert_eq!(lookup(0x120), None);
        assert_eq!(table.pcs.len(), 5);
        assert_eq!(counts, Counts { functions: 1, ..Counts::default() });
    }

    #[test]
    fn a_remembered_state_is_restored() {
        let (table, _) = built(&[(
            0,
            0x20,
            vec![(2, CfaOffset(32)), (8, RememberState), (8, CfaOffset(8)), (9, RestoreState), (16, CfaOffset(48))],
        )]);
        let lookup = |pc| table.as_table().lookup(pc);
        assert_eq!([lookup(0), lookup(2), lookup(8), lookup(9), lookup(16)], [sp(8), sp(32), sp(8), sp(32), sp(48)]);
    }

    #[test]
    fn functions_are_sorted_and_equal_neighbours_share_a_row() {
        let (table, counts) = built(&[(0x30, 0x10, vec![]), (0x10, 0x10, vec![]), (0x20, 0x10, vec![])]);
        assert_eq!(table.pcs, [0x10, 0x40]);
        assert_eq!(counts.functions, 3);
    }

    #[test]
    fn where_functions_overlap_the_later_start_holds() {
        let (table, _) = built(&[(0x10, 0x20, vec![]), (0x20, 0x20, vec![(0, CfaOffset(16))])]);
        let lookup = |pc| table.as_table().lookup(pc);
        assert_eq!([lookup(0x1f), lookup(0x20), lookup(0x3f), lookup(0x40)], [sp(8), sp(16), sp(16), None]);
    }

    #[test]
    fn a_frame_that_aligned_its_stack_is_expressed_but_for_the_moment_when_only_r10_knows_it() {
        let mut cfa = Expression::new();
        cfa.op_breg(RBP, -8);
        cfa.op_deref();
        let mut fp = Expression::new();
        fp.op_breg(RBP, 0);
        let (table, counts) = built(&[(
            0,
            0x40,
            vec![(5, SetCfa(Register(10), 0)), (16, At(RBP, fp)), (20, CfaExpression(cfa)), (0x30, SetCfa(RSP, 8))],
        )]);
        let lookup = |pc| table.as_table().lookup(pc);
        assert_eq!(lookup(5), Some(Rule::UNSUPPORTED));
        let cfa = Cfa::Load { base: Base::FramePointer, offset: -8, add: 0 };
        assert_eq!(lookup(20), frame(cfa, FramePointer::At(Base::FramePointer, 0)));
        assert_eq!(counts.unsupported_rows, 1);
    }

    #[test]
    fn the_root_and_rules_beyond_expression_are_marked() {
        let mut twice = Expression::new();
        twice.op_breg(RSP, 0);
        twice.op_deref();
        twice.op_deref();
        let (table, _) = built(&[(
            0,
            0x40,
            vec![
                (1, Elsewhere(RIP, Register(5))),
                (2, Offset(RIP, -16)),
                (3, Undefined(RIP)),
                (4, Restore(RIP)),
                (5, Undefined(RBP)),
                (6, Elsewhere(RBP, Register(5))),
                (7, Restore(RBP)),
                (8, CfaExpression(twice)),
            ],
        )]);
        let lookup = |pc| table.as_table().lookup(pc);
        let unsupported = Some(Rule::UNSUPPORTED);
        let lost = frame(Cfa::Offset(Base::StackPointer, 8), FramePointer::Undefined);
        assert_eq!([lookup(0), lookup(1), lookup(2)], [sp(8), unsupported, unsupported]);
        assert_eq!([lookup(3), lookup(4)], [Some(Rule::END_OF_STACK), sp(8)]);
        assert_eq!([lookup(5), lookup(6), lookup(7)], [lost, unsupported, sp(8)]);
        assert_eq!(lookup(8), unsupported);
    }

    #[test]
    fn glibcs_signal_frame_is_expressed_and_found_by_a_return_address_minus_one() {
        let slot = |offset| {
            let mut slot = Expression::new();
            slot.op_breg(RSP, offset);
            slot
        };
        let mut cfa = slot(160);
        cfa.op_deref();
        let instructions = [
            CfaExpression(cfa),
            At(RBP, slot(120)),
            At(RSP, slot(160)),
            At(RIP, slot(168)),
            At(Register(3), slot(128)),
        ];
        let bytes = section(16, &instructions, true, &[(0x100, 9, vec![])]);
        let (table, _) = table::<Registers>(&bytes);
        for pc in [0xff, 0x100, 0x108] {
            assert_eq!(table.as_table().lookup(pc), Some(x86_64::SIGNAL_FRAME));
        }
        assert_eq!(table.as_table().lookup(0xfe), None);
        assert_eq!(table.as_table().lookup(0x109), None);
    }

    #[test]
    fn malformed_instructions_mark_the_rest_of_their_function_and_no_other() {
        let (table, counts) = built(&[
            (0x10, 0x10, vec![]),
            (0x20, 0x10, vec![(0, CfaOffset(16)), (4, RestoreState)]),
            (0x30, 0x10, vec![]),
        ]);
        let lookup = |pc| table.as_table().lookup(pc);
        assert_eq!(
            [lookup(0x1f), lookup(0x23), lookup(0x24), lookup(0x2f)],
            [sp(8), sp(16), Some(Rule::UNSUPPORTED), Some(Rule::UNSUPPORTED)]
        );
        assert_eq!([lookup(0x30), lookup(0x40)], [sp(8), None]);
        assert_eq!(counts, Counts { functions: 3, malformed: 1, unsupported_rows: 1, ..Counts::default() });
    }

    #[test]
    fn a_malformed_head_is_skipped_and_counted() {
        let mut bytes = section(16, &initial(), false, &[(0x10, 0x10, vec![]), (0x20, 0x10, vec![])]);
        let cie_len = u32::from_le_bytes(*bytes.first_chunk().unwrap()) as usize + 4;
        bytes[cie_len + 4] ^= 0xff;
        let (table, counts) = table::<Registers>(&bytes);
        assert_eq!(counts, Counts { functions: 1, skipped: 1, ..Counts::default() });
        assert_eq!([table.as_table().lookup(0x10), table.as_table().lookup(0x20)], [None, sp(8)]);
    }

    #[test]
    fn functions_outside_four_gigabytes_from_the_base_are_skipped() {
        let bytes = section(16, &initial(), false, &[(0x10, 0x10, vec![])]);
        for base in [BASE + 0x11, u64::MAX] {
            let (table, counts) = build::<Registers>(Section { bytes: &bytes, address: EH_FRAME }, base);
            assert_eq!((table.pcs.len(), counts.skipped), (0, 1));
        }
        let (_, counts) = table::<Registers>(&[]);
        assert_eq!(counts, Counts::default());
    }

    #[test]
    fn what_follows_the_terminator_is_not_read() {
        let mut bytes = section(16, &initial(), false, &[(0x10, 0x10, vec![])]);
        let clean = table::<Registers>(&bytes);
        bytes.extend([0; 4]);
        bytes.extend([0xa5; 100]);
        assert_eq!(table::<Registers>(&bytes), clean);
    }

    #[test]
    fn rules_for_which_no_number_is_left_are_unsupported_and_counted() {
        let functions: Vec<Function> =
            (0..70_000_u32).map(|i| (i * 16, 16, vec![(0, CfaOffset(16 + i as i32))])).collect();
        let (table, counts) = built(&functions);
        assert_eq!(table.interned.len(), 65_536);
        assert_eq!(counts.overflowed_rows, 70_000 - 65_534);
        assert_eq!(table.as_table().lookup(65_533 * 16), sp(16 + 65_533));
        assert_eq!(table.as_table().lookup(69_999 * 16), Some(Rule::UNSUPPORTED));
    }

    #[test]
    fn another_return_address_column_is_unsupported() {
        let bytes = section(30, &initial(), false, &[(0x10, 0x10, vec![])]);
        let (table, counts) = table::<Registers>(&bytes);
        assert_eq!((table.as_table().lookup(0x10), counts.malformed), (Some(Rule::UNSUPPORTED), 1));
    }
}

mod on_aarch64 {
    use super::*;
    use aarch64::{Base, Form, Registers, Saved};

    const SP: Register = Register(31);
    const X29: Register = Register(29);
    const X30: Register = Register(30);

    fn frame(base: Base, cfa: i32, lr: Saved, fp: Saved) -> Option<Rule> {
        Some(Form::Frame { base, cfa, lr, fp, signal: false }.encode())
    }

    #[test]
    fn a_signed_frame_with_a_frame_pointer_goes_from_leaf_to_leaf() {
        let instructions = vec![
            (4, NegateRaState),
            (8, CfaOffset(48)),
            (8, Offset(X29, -48)),
            (8, Offset(X30, -40)),
            (12, CfaRegister(X29)),
            (32, SetCfa(SP, 0)),
            (32, Restore(X29)),
            (32, Restore(X30)),
            (36, NegateRaState),
        ];
        let bytes = section(30, &[SetCfa(SP, 0)], false, &[(0, 40, instructions)]);
        let (table, counts) = table::<Registers>(&bytes);
        let lookup = |pc| table.as_table().lookup(pc);
        let leaf = frame(Base::StackPointer, 0, Saved::InRegister, Saved::InRegister);
        assert_eq!([lookup(0), lookup(4)], [leaf, leaf]);
        assert_eq!(lookup(8), frame(Base::StackPointer, 48, Saved::AtCfa(-40), Saved::AtCfa(-48)));
        assert_eq!(lookup(12), frame(Base::FramePointer, 48, Saved::AtCfa(-40), Saved::AtCfa(-48)));
        assert_eq!([lookup(32), lookup(39), lookup(40)], [leaf, leaf, None]);
        assert_eq!(counts, Counts { functions: 1, ..Counts::default() });
    }

    #[test]
    fn the_root_and_rules_beyond_expression_are_marked() {
        let instructions = vec![
            (4, Undefined(X30)),
            (8, Restore(X30)),
            (8, Offset(X29, -16)),
            (12, SetCfa(Register(9), 0)),
            (16, SetCfa(SP, 12)),
            (20, SetCfa(SP, 16)),
            (20, Elsewhere(X30, Register(5))),
        ];
        let bytes = section(30, &[SetCfa(SP, 0)], false, &[(0, 40, instructions)]);
        let (table, _) = table::<Registers>(&bytes);
        let lookup = |pc| table.as_table().lookup(pc);
        assert_eq!(lookup(4), Some(Rule::END_OF_STACK));
        assert_eq!(lookup(8), frame(Base::StackPointer, 0, Saved::InRegister, Saved::AtCfa(-16)));
        for pc in [12, 16, 20] {
            assert_eq!(lookup(pc), Some(Rule::UNSUPPORTED), "{pc}");
        }
    }
}
